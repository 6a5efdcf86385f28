// Splits a text into the words and the signs , : [ ] and takes numbers as torch does: by their
// longest beginning that is one.
#include "setting_reader.hpp"

#include <algorithm>
#include <stdexcept>

namespace et_replay {

namespace {

std::vector<std::string> tokens_of(const std::string& text) {
  std::vector<std::string> tokens;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) tokens.push_back(word);
    word.clear();
  };
  for (const char letter : text) {
    if (letter == ',' || letter == ':' || letter == '[' || letter == ']') {
      end_word();
      tokens.emplace_back(1, letter);
    } else if (letter != ' ' && (letter < '\t' || letter > '\r')) {
      word += letter;
    }
  }
  end_word();
  return tokens;
}

std::string versions_since(int minor) {
  const std::string since = "torch 2." + std::to_string(minor);
  return since + (minor == oldest_minor ? " to 2.14 have it" : " and later have it");
}

}  // namespace

SettingReader::SettingReader(const std::string& text, Version version, const SettingOption* options,
                             std::size_t count)
    : version_(version), options_(options), count_(count), tokens_(tokens_of(text)) {}

bool SettingReader::seek(const char* name) {
  const SettingOption* option = find(name);
  if (option->since > version_.minor) return false;
  bool found = false;
  for (std::size_t index = 0; index + 2 < tokens_.size(); ++index) {
    if (tokens_[index] != name || tokens_[index + 1] != ":") continue;
    position_ = index + 2;
    option_ = option;
    found = true;
  }
  return found;
}

const SettingOption* SettingReader::next_option() {
  if (position_ == tokens_.size()) return nullptr;
  const std::string name = tokens_[position_++];
  option_ = find(name);
  if (option_ == nullptr) refuse_unknown(name);
  if (option_->since > version_.minor) refuse(version_.name() + " does not know it");
  if (!reads(":")) refuse("expected ':' and a value behind it");
  return option_;
}

void SettingReader::end_option() {
  if (position_ == tokens_.size() || reads(",")) return;
  refuse("expected ',' behind its value, got '" + peek() + "'");
}

bool SettingReader::reads(const char* token) {
  if (position_ == tokens_.size() || tokens_[position_] != token) return false;
  ++position_;
  return true;
}

const std::string& SettingReader::peek() const {
  if (position_ == tokens_.size()) refuse("expected a value, got the end of the settings");
  return tokens_[position_];
}

std::string SettingReader::word() {
  const std::string word = peek();
  ++position_;
  return word;
}

bool SettingReader::boolean() {
  const std::string value = word();
  if (value != "True" && value != "False") refuse("expected True or False, got '" + value + "'");
  return value == "True";
}

double SettingReader::number() {
  const std::string value = word();
  try {
    return std::stod(value);
  } catch (const std::logic_error&) {
    refuse("expected a number, got '" + value + "'");
  }
}

Bytes SettingReader::whole() {
  const std::string value = word();
  try {
    const unsigned long long number = std::stoull(value);
    return static_cast<Bytes>(std::min(number, 1ull << 62));
  } catch (const std::logic_error&) {
    refuse("expected a whole number, got '" + value + "'");
  }
}

Bytes SettingReader::mebibytes() { return std::min(whole(), Bytes{1} << 42) * mebibyte; }

void SettingReader::refuse(const std::string& reason) const {
  throw std::invalid_argument("The allocator option " + std::string(option_->name) + ": " + reason +
                              "; " + versions_since(option_->since) + ".");
}

void SettingReader::refuse_unknown(const std::string& name) const {
  std::string known;
  for (std::size_t index = 0; index < count_; ++index) {
    if (options_[index].since > version_.minor) continue;
    known += (known.empty() ? "" : ", ") + std::string(options_[index].name);
  }
  throw std::invalid_argument("No torch from 2.7 to 2.14 has an allocator option '" + name + "'; " +
                              version_.name() + " has " + known + ".");
}

const SettingOption* SettingReader::find(const std::string& name) const {
  const SettingOption* end = options_ + count_;
  const SettingOption* found =
      std::find_if(options_, end, [&](const SettingOption& option) { return option.name == name; });
  return found == end ? nullptr : found;
}

}  // namespace et_replay
