#include <algorithm>

#include "core/error.h"
#include "core/option_value.h"
#include "core/options.h"
#include "core/strings.h"

namespace hone {

void OptionTable::add(std::string_view name, OptionTarget target, std::string_view help, Range range) {
  Option option{.name = prefix_ + std::string(name),
                .help = std::string(help),
                .group = group_,
                .range = range,
                .target = target,
                .default_text = {}};
  HONE_ASSERT(find(option.name) == nullptr, "the option ", option.name, " is declared twice");
  const auto* enumeration = std::get_if<EnumTarget>(&option.target);
  std::string& text = option.default_text;
  text = enumeration != nullptr ? alternatives(enumeration->table->names)[enumeration->get(enumeration->value)]
                                : value_text(option);
  if (std::holds_alternative<double*>(option.target) && text.ends_with(".0")) text.resize(text.size() - 2);
  option.run_only = of_run_;
  options_.push_back(std::move(option));
}

void OptionTable::alias(std::string_view other, std::string_view name) {
  HONE_ASSERT(find(name) != nullptr && find(other) == nullptr, other, " cannot be an alias of ", name);
  aliases_.emplace(other, name);
}

void OptionTable::secret(std::string_view name) {
  const auto at = std::ranges::find(options_, name, &Option::name);
  HONE_ASSERT(at != options_.end(), "there is no option ", name);
  at->secret = true;
  at->default_text.clear();
}

const Option* OptionTable::find(std::string_view name) const {
  const auto alias = aliases_.find(name);
  const std::string_view wanted = alias == aliases_.end() ? name : alias->second;
  const auto at = std::ranges::find(options_, wanted, &Option::name);
  return at == options_.end() ? nullptr : &*at;
}

bool OptionTable::is_map(std::string_view name) const {
  return std::ranges::any_of(options_, [&](const Option& option) {
    return option.name.size() > name.size() && option.name.starts_with(name) && option.name[name.size()] == '.';
  });
}

std::vector<std::string> OptionTable::names() const {
  std::vector<std::string> names;
  for (const Option& option : options_) {
    const std::size_t dot = option.name.find('.');
    if (dot != std::string::npos && (names.empty() || names.back() != option.name.substr(0, dot))) {
      names.push_back(option.name.substr(0, dot));
    }
    names.push_back(option.name);
  }
  for (const auto& [other, name] : aliases_) names.push_back(other);
  return names;
}

std::vector<std::string> notice_lines(std::span<const OptionNotice> notices) {
  std::vector<std::pair<std::string, std::vector<std::string>>> keys_by_note;
  for (const OptionNotice& notice : notices) {
    auto at = std::ranges::find(keys_by_note, notice.note, &std::pair<std::string, std::vector<std::string>>::first);
    if (at == keys_by_note.end()) at = keys_by_note.insert(at, {notice.note, {}});
    if (std::ranges::count(at->second, notice.key) == 0) at->second.push_back(notice.key);
  }
  std::vector<std::string> lines;
  for (auto& [note, keys] : keys_by_note) {
    const std::string last = keys.back();
    keys.pop_back();
    lines.push_back(keys.empty() ? text_of(last, " has no effect: ", note)
                                 : text_of(join(keys, ", "), " and ", last, " have no effect: ", note));
  }
  return lines;
}

std::string OptionInput::place_of(std::string_view name) const {
  const auto at = places.find(name);
  return at == places.end() ? std::string(name) : at->second;
}

}  // namespace hone
