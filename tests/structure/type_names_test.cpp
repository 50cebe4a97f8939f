// Checks that no two types have the same name. All rooms share one namespace, and if two sources define types of the
// same name the linker silently merges their code. Unnamed namespaces do not help among the sources of a folder,
// because these may be compiled as one unit (except CUDA sources).
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "support/paths.h"

namespace hone::test {
namespace {
namespace fs = std::filesystem;

using Sources = std::map<std::string, std::string>;  // path, content
using Tokens = std::vector<std::string>;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Returns the position after the literal that begins at the quote `at`.
std::size_t end_of_literal(std::string_view text, std::size_t at) {
  if (text[at] == '"' && at > 0 && text[at - 1] == 'R') {
    const std::size_t open = text.find('(', at);
    const std::string close = text_of(")", text.substr(at + 1, open - at - 1), "\"");
    return std::min(text.size(), text.find(close, open) + close.size());
  }
  for (std::size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == text[at]) {
      return i + 1;
    }
  }
  return text.size();
}

// Splits a source into words, numbers, "::" and single characters, without comments, literals and preprocessor lines.
Tokens tokens_of(std::string_view text) {
  Tokens tokens;
  bool begins_line = true;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '\n') begins_line = true;
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at;
      continue;
    }
    if (c == '#' && begins_line) {
      while (at < text.size() && text[at] != '\n') at += text[at] == '\\' ? 2 : 1;
      continue;
    }
    begins_line = false;
    if (text.substr(at, 2) == "//") {
      at = std::min(text.size(), text.find('\n', at));
    } else if (text.substr(at, 2) == "/*") {
      at = std::min(text.size(), text.find("*/", at) + 2);
    } else if (is_word(c)) {
      const std::size_t begin = at;
      // A quote between digits separates them.
      while (at < text.size() &&
             (is_word(text[at]) || (text[at] == '\'' && std::isdigit(static_cast<unsigned char>(c)) != 0))) {
        ++at;
      }
      tokens.emplace_back(text.substr(begin, at - begin));
    } else if (c == '"' || c == '\'') {
      at = end_of_literal(text, at);
    } else {
      const std::size_t size = text.substr(at, 2) == "::" ? 2 : 1;
      tokens.emplace_back(text.substr(at, size));
      at += size;
    }
  }
  return tokens;
}

// Returns the position after the bracket that closes the one at `at`.
std::size_t behind(const Tokens& tokens, std::size_t at, std::string_view open, std::string_view close) {
  int depth = 0;
  for (; at < tokens.size(); ++at) {
    if (tokens[at] == open) ++depth;
    if (tokens[at] == close && --depth == 0) return at + 1;
  }
  return at;
}

// Returns the name of the class, struct, union or enum defined by a brace after `head`, or "" if the brace defines no
// type or a specialization of a template.
std::string type_of(const Tokens& head) {
  std::size_t at = 0;
  while (at < head.size() && head[at] == "template") at = behind(head, at + 1, "<", ">");
  if (at == head.size()) return {};
  const bool is_enum = head[at] == "enum";
  if (!is_enum && head[at] != "class" && head[at] != "struct" && head[at] != "union") return {};
  ++at;
  if (is_enum && at < head.size() && (head[at] == "class" || head[at] == "struct")) ++at;
  while (at < head.size() && (head[at] == "[" || head[at] == "alignas")) {
    at = head[at] == "[" ? behind(head, at, "[", "]") : behind(head, at + 1, "(", ")");
  }
  std::string name;
  while (at < head.size() && (head[at] == "::" || is_word(head[at][0])) && head[at] != "final") name += head[at++];
  const bool is_definition = at == head.size() || head[at] == ":" || head[at] == "final";
  return is_definition ? name : std::string();
}

struct TypeName {
  std::string name;         // qualified with its namespaces and classes
  bool is_unnamed = false;  // in an unnamed namespace
};

std::vector<TypeName> types_in(std::string_view source) {
  struct Scope {
    std::string name;
    bool is_open = true;  // a namespace or a class, whose types are visible elsewhere
    bool is_unnamed = false;
  };
  std::vector<TypeName> types;
  std::vector<Scope> scopes;
  Tokens head;
  int parentheses = 0;
  for (const std::string& token : tokens_of(source)) {
    parentheses += token == "(" ? 1 : token == ")" ? -1 : 0;
    if (token == "{") {
      Scope scope = scopes.empty() ? Scope() : scopes.back();
      const bool is_namespace = !head.empty() && (head[0] == "namespace" ||
                                                  (head[0] == "inline" && head.size() > 1 && head[1] == "namespace"));
      const std::string type = parentheses == 0 ? type_of(head) : std::string();
      if (is_namespace) {
        if (head.back() == "namespace") scope.is_unnamed = true;
        for (std::size_t i = head[0] == "inline" ? 2 : 1; i < head.size(); ++i) scope.name += head[i];
        if (head.back() != "namespace") scope.name += "::";
      } else if (!type.empty() && scope.is_open) {
        types.push_back({scope.name + type, scope.is_unnamed});
        scope.name += type + "::";
      } else if (head != Tokens{"extern"}) {
        scope.is_open = false;
      }
      scopes.push_back(scope);
      head.clear();
    } else if (token == "}") {
      if (!scopes.empty()) scopes.pop_back();
      head.clear();
    } else if (token == ";") {
      head.clear();
    } else {
      head.push_back(token);
      // A nested type may follow an access specifier such as "public:".
      if (token == ":" && head.size() == 2 && (head[0] == "public" || head[0] == "private" || head[0] == "protected")) {
        head.clear();
      }
    }
  }
  return types;
}

// Returns a line for each name that is defined twice.
std::vector<std::string> collisions_in(const Sources& sources) {
  std::map<std::string, std::set<std::string>> named;
  std::map<std::pair<std::string, std::string>, std::set<std::string>> unnamed;  // by folder
  for (const auto& [path, content] : sources) {
    for (const TypeName& type : types_in(content)) {
      if (type.is_unnamed) {
        if (!path.ends_with(".cu")) unnamed[{fs::path(path).parent_path().string(), type.name}].insert(path);
      } else {
        named[type.name].insert(path);
      }
    }
  }
  std::vector<std::string> lines;
  const auto add = [&](const std::string& name, const std::set<std::string>& paths) {
    if (paths.size() < 2) return;
    std::string line = name + " is defined in";
    for (const std::string& path : paths) line += " " + path;
    lines.push_back(line);
  };
  for (const auto& [name, paths] : named) add(name, paths);
  for (const auto& [key, paths] : unnamed) {
    std::set<std::string> all = paths;
    if (const auto found = named.find(key.second); found != named.end()) {
      for (const std::string& path : found->second) {
        if (fs::path(path).parent_path() == key.first) all.insert(path);
      }
    }
    add(key.second, all);
  }
  return lines;
}

TEST(TypeNames, EachStandsForOneType) {
  Sources sources;
  for (const auto& entry : fs::recursive_directory_iterator(source_dir() / "src")) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".h" || extension == ".cpp" || extension == ".cu" || extension == ".cuh") {
      sources[fs::relative(entry.path(), source_dir()).string()] = read_file(entry.path());
    }
  }
  std::size_t types = 0;
  for (const auto& [path, content] : sources) types += types_in(content).size();
  EXPECT_GT(types, 900u);
  for (const std::string& line : collisions_in(sources)) ADD_FAILURE() << line;
}

TEST(TypeNames, DuplicatesAreFound) {
  const auto count = [](const Sources& sources) { return collisions_in(sources).size(); };
  const std::string named = "namespace hone {\nclass Batch final : public Base {\n public:\n  int size;\n};\n}";
  const std::string unnamed = "namespace hone {\nnamespace {\nstruct Batch {};\n}  // namespace\n}";
  EXPECT_EQ(count({{"src/a/x.h", named}, {"src/b/y.cpp", named}}), 1u);
  EXPECT_EQ(count({{"src/a/x.h", named}, {"src/b/y.cpp", "namespace hone { enum class Batch : int { kOne }; }"}}), 1u);
  EXPECT_EQ(count({{"src/a/x.h", named}, {"src/b/y.h", "namespace hone { template <class T> struct Batch {}; }"}}), 1u);
  EXPECT_EQ(count({{"src/a/x.cpp", unnamed}, {"src/a/y.cpp", unnamed}}), 1u);
  EXPECT_EQ(count({{"src/a/x.h", named}, {"src/a/y.cpp", unnamed}}), 1u);
  EXPECT_EQ(collisions_in({{"src/a/x.h", named}, {"src/b/y.h", named}}).at(0),
            "hone::Batch is defined in src/a/x.h src/b/y.h");
  // Nested types of two classes with the same name.
  const std::string outer = "namespace hone {\nstruct Outer {\n private:\n  struct Inner { int i = 0; };\n};\n}";
  EXPECT_EQ(count({{"src/a/x.h", outer}, {"src/b/y.h", "namespace hone { struct Outer::Inner {}; }"}}), 1u);
}

TEST(TypeNames, WhatIsNoDuplicateIsNotFound) {
  const std::string named = "namespace hone { struct Batch { int size = 0; }; }";
  const std::string unnamed = "namespace hone { namespace { struct Batch {}; } }";
  for (const char* other : {
           "namespace hone { struct Batch; class Model { class Batch {}; }; }",
           "namespace hone::test { struct Batch {}; }",
           "namespace hone { void run() { struct Batch {}; } }",
           "namespace hone { struct Batch make() { return {}; } }",
           "namespace hone { template <> struct Batch<int> {}; }",
           "namespace hone { /* struct Batch {}; */ // struct Batch {}\n }",
           "namespace hone { const char* text = \"struct Batch {\"; const char* raw = R\"(struct Batch {)\"; }",
           "#define BATCH struct Batch {}\nnamespace hone { constexpr int kCount = 1'000; const char c = '{'; }",
       }) {
    EXPECT_TRUE(collisions_in({{"src/a/x.h", named}, {"src/a/y.cpp", other}}).empty()) << other;
  }
  EXPECT_TRUE(collisions_in({{"src/a/x.cpp", unnamed}, {"src/b/y.cpp", unnamed}}).empty());
}

}  // namespace
}  // namespace hone::test
