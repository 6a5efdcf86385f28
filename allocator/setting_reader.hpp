// The tokens of PYTORCH_ALLOC_CONF one after another, and the sentences about wrong ones.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "settings.hpp"

namespace et_replay {

class SettingReader;

struct SettingOption {
  const char* name;
  int since;  // the first minor version of torch 2 that has it, or is imitated
  void (*read)(SettingReader&, Settings&);
};

constexpr bool is_power_of_two(Bytes number) {
  return number > 0 && (number & (number - 1)) == 0;
}

class SettingReader {
 public:
  template <std::size_t count>
  SettingReader(const std::string& text, Version version, const SettingOption (&options)[count])
      : SettingReader(text, version, options, count) {}

  Version version() const { return version_; }

  // Moves to the value of the last option of this name, and returns whether there is one.
  bool seek(const char* name);
  void rewind() { position_ = 0; }
  // Reads the name of an option and its colon; nullptr at the end of the text.
  const SettingOption* next_option();
  // Reads the comma behind an option, unless the text ends here.
  void end_option();

  bool reads(const char* token);     // the token, if it is the next one
  const std::string& peek() const;   // the next token
  std::string word();
  bool boolean();
  double number();
  Bytes whole();
  Bytes mebibytes();  // a number of MiB, in bytes; above 2^62 it is no more exact

  // Throws a sentence about the option that is being read.
  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  SettingReader(const std::string& text, Version version, const SettingOption* options,
                std::size_t count);
  const SettingOption* find(const std::string& name) const;
  [[noreturn]] void refuse_unknown(const std::string& name) const;

  Version version_;
  const SettingOption* options_;
  std::size_t count_;
  const SettingOption* option_ = nullptr;
  std::vector<std::string> tokens_;
  std::size_t position_ = 0;
};

// The divisions of each interval: one number for all, or a list of them by size.
void read_roundup_divisions(SettingReader& reader, Settings& settings);

}  // namespace et_replay
