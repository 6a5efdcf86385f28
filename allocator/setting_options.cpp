// Reads PYTORCH_ALLOC_CONF: every option with the versions of torch that have it.
#include "settings.hpp"

#include "setting_reader.hpp"

namespace et_replay {

namespace {

void read_backend(SettingReader& reader, Settings&) {
  const std::string name = reader.word();
  if (name == "cudaMallocAsync") {
    reader.refuse("cudaMallocAsync is the driver's own pool, which is not simulated");
  }
  if (name != "native") reader.refuse("expected native or cudaMallocAsync, got '" + name + "'");
}

// The sizes that have to hold a packed segment; `above` says whether its own size is too small.
Bytes read_oversize(SettingReader& reader, const Settings& settings, bool above) {
  const std::string text = reader.peek();
  const Bytes size = reader.mebibytes();
  const Bytes least = settings.large_segment_size;
  if (size < least || (above && size == least)) {
    reader.refuse(std::string("expected ") + (above ? "more than " : "at least ") +
                  std::to_string(least / mebibyte) + " (MiB, a packed segment), got " + text);
  }
  return size;
}

void read_max_split_size(SettingReader& reader, Settings& settings) {
  const bool above = reader.version().max_split_size_must_exceed_segment();
  settings.max_split_size = read_oversize(reader, settings, above);
}

void read_max_non_split_rounding(SettingReader& reader, Settings& settings) {
  const bool above = reader.version().max_split_size_must_exceed_segment();
  settings.max_non_split_rounding = read_oversize(reader, settings, above);
}

void read_garbage_collection_threshold(SettingReader& reader, Settings& settings) {
  const std::string text = reader.peek();
  const double value = reader.number();
  if (!(value > 0 && value < 1)) reader.refuse("expected a number between 0 and 1, got " + text);
  settings.garbage_collection_threshold = value;
}

void read_expandable_segments(SettingReader& reader, Settings& settings) {
  settings.expandable_segments = reader.boolean();
}

void read_large_segment_size(SettingReader& reader, Settings& settings) {
  const std::string text = reader.peek();
  const Bytes size = reader.mebibytes();
  if (size <= packing_limit) reader.refuse("expected more than 10 (MiB), got " + text);
  settings.large_segment_size = size;
}

void read_memory_fraction(SettingReader& reader, Settings& settings) {
  const std::string text = reader.peek();
  const double value = reader.number();
  if (!(value >= 0 && value <= 1)) reader.refuse("expected a number from 0 to 1, got " + text);
  settings.memory_fraction = value;
}

void read_throw_on_device_oom(SettingReader& reader, Settings& settings) {
  settings.throw_on_device_oom = reader.boolean();
}

void read_capture_reuse(SettingReader& reader, Settings& settings) {
  settings.capture_reuse = reader.boolean();
}

void skip_boolean(SettingReader& reader, Settings&) { reader.boolean(); }

void skip_mebibytes(SettingReader& reader, Settings&) { reader.mebibytes(); }

void skip_register_threads(SettingReader& reader, Settings&) {
  const std::string text = reader.peek();
  const Bytes count = reader.whole();
  if (!is_power_of_two(count) || count > 128) {
    reader.refuse("expected a power of two up to 128, got " + text);
  }
}

void skip_reserve_segment_size(SettingReader& reader, Settings&) {
  if (reader.whole() == 0) reader.refuse("expected more than 0 (MiB), got 0");
}

constexpr SettingOption options[] = {
    {"backend", 7, read_backend},
    {"max_split_size_mb", 7, read_max_split_size},
    {"max_non_split_rounding_mb", 7, read_max_non_split_rounding},
    {"garbage_collection_threshold", 7, read_garbage_collection_threshold},
    {"roundup_power2_divisions", 7, read_roundup_divisions},
    {"expandable_segments", 7, read_expandable_segments},
    {"release_lock_on_cudamalloc", 7, skip_boolean},
    {"release_lock_on_hipmalloc", 7, skip_boolean},
    {"pinned_use_cuda_host_register", 7, skip_boolean},
    {"pinned_use_hip_host_register", 7, skip_boolean},
    {"pinned_num_register_threads", 7, skip_register_threads},
    {"pinned_use_background_threads", 7, skip_boolean},
    {"graph_capture_record_stream_reuse", 9, read_capture_reuse},
    {"per_process_memory_fraction", 10, read_memory_fraction},
    {"pinned_reserve_segment_size_mb", 10, skip_reserve_segment_size},
    {"large_segment_size_mb", 11, read_large_segment_size},
    {"throw_on_cudamalloc_oom", 12, read_throw_on_device_oom},
    {"pinned_free_catch_all", 12, skip_boolean},
    {"pinned_max_round_threshold_mb", 13, skip_mebibytes},
    {"pinned_max_cached_size_mb", 13, skip_mebibytes},
    {"expandable_segments_reserve", 15, skip_boolean},
    {"expandable_segments_reserve_by_class", 15, skip_boolean},
};

}  // namespace

void Settings::read(const std::string& text, Version version) {
  SettingReader reader(text, version, options);
  Settings settings = *this;
  // Sizes are held against the packed segment, so it is read first, wherever it stands.
  if (reader.seek("large_segment_size_mb")) read_large_segment_size(reader, settings);
  reader.rewind();
  settings.max_split_size = unlimited;
  if (!version.keeps_non_split_rounding()) {
    settings.max_non_split_rounding = settings.large_segment_size;
  }
  settings.garbage_collection_threshold = 0;
  settings.roundup_divisions = {};
  settings.rounds_up = false;
  while (const SettingOption* option = reader.next_option()) {
    option->read(reader, settings);
    reader.end_option();
  }
  *this = settings;
}

}  // namespace et_replay
