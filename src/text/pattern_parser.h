// Parses a regular expression into the nodes of a Pattern.
#pragma once

#include <string_view>
#include <vector>

#include "text/pattern.h"

namespace hone {

// Recursive descent over the source. Nodes are created from back to front: each emit function gets the node that
// follows.
class PatternParser {
 public:
  PatternParser(Pattern& pattern, std::string_view source);
  void parse();

 private:
  struct Element;  // one atom with its repetition, before the following node is known
  using Sequence = std::vector<Element>;
  using Alternatives = std::vector<Sequence>;
  static constexpr int kDeepestGroup = 100;  // nesting of groups and of classes

  [[noreturn]] void fail(std::string_view what) const;
  [[nodiscard]] bool at_end() const { return at_ >= source_.size(); }
  [[nodiscard]] char peek(std::size_t offset = 0) const;
  [[nodiscard]] bool accept(std::string_view text);
  char32_t next_code_point();

  Alternatives parse_alternatives();
  Sequence parse_sequence();
  Element parse_atom();
  Element parse_group();
  void parse_repetition(Element& element);
  bool parse_count(Element& element);
  CodePointSet parse_escape(bool in_class);
  CodePointSet parse_property(bool negated);
  CodePointSet parse_class();
  char32_t parse_hex_escape(char kind);

  int emit(const Alternatives& alternatives, int next);
  int emit(const Sequence& sequence, int next);
  int emit(const Element& element, int next);
  int emit_group(const Element& element, int next);
  int add_node(Pattern::Node node);
  int add_set(const CodePointSet& set);

  Pattern& pattern_;
  std::string_view source_;
  std::size_t at_ = 0;
  bool ignore_case_ = false;
  int depth_ = 0;
};

}  // namespace hone
