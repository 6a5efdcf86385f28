// Reads roundup_power2_divisions: `4`, or `[256:1,512:2,>:4]` with sizes in MiB.
#include <algorithm>

#include "setting_reader.hpp"

namespace et_replay {

namespace {

constexpr std::size_t last_interval = std::tuple_size<decltype(Settings::roundup_divisions)>{} - 1;

std::size_t read_interval(SettingReader& reader) {
  const std::string text = reader.peek();
  const Bytes size = reader.whole();
  if (!is_power_of_two(size)) reader.refuse("expected sizes that are powers of two, got " + text);
  std::size_t interval = 0;
  while (interval < last_interval && (Bytes{2} << interval) <= size) ++interval;
  return interval;
}

Bytes read_divisions(SettingReader& reader, Bytes least) {
  const std::string text = reader.peek();
  const Bytes divisions = reader.whole();
  if (!is_power_of_two(divisions) && divisions != least) {
    reader.refuse(std::string("expected divisions that are a power of two") +
                  (least == 0 ? " or 0" : "") + ", got " + text);
  }
  return divisions;
}

void read_list(SettingReader& reader, Settings& settings) {
  auto& divisions = settings.roundup_divisions;
  std::size_t last = 0;
  bool first = true;
  while (!reader.reads("]")) {
    const bool all_above = reader.reads(">");
    const std::size_t interval = all_above ? 0 : read_interval(reader);
    if (!reader.reads(":")) reader.refuse("expected ':' between a size and its divisions");
    const Bytes value = read_divisions(reader, 0);
    if (all_above) {
      const std::size_t from = last + (reader.version().greater_sign_overwrites() ? 0 : 1);
      for (std::size_t index = from; index <= last_interval; ++index) divisions[index] = value;
    } else {
      // The first size that is named stands for all below it, too.
      for (std::size_t index = first ? 0 : interval; index <= interval; ++index) {
        divisions[index] = value;
      }
      first = false;
      last = interval;
    }
    if (reader.peek() != "]" && !reader.reads(",")) {
      reader.refuse("expected ',' or ']' in its list");
    }
  }
}

}  // namespace

void read_roundup_divisions(SettingReader& reader, Settings& settings) {
  if (reader.reads("[")) {
    read_list(reader, settings);
  } else {
    settings.roundup_divisions.fill(read_divisions(reader, 1));
  }
  const auto& divisions = settings.roundup_divisions;
  settings.rounds_up =
      std::any_of(divisions.begin(), divisions.end(), [](Bytes count) { return count > 1; });
}

}  // namespace et_replay
