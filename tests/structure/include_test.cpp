// Checks with the compiler that a room can include only headers of the rooms it names in CMakeLists.txt and of the
// rooms those name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/files.h"
#include "core/strings.h"
#include "support/paths.h"

namespace hone::test {
namespace {
namespace fs = std::filesystem;

using Rooms = std::map<std::string, std::set<std::string>>;

// Parses the hone_room(...) lines of CMakeLists.txt: each room and all rooms that it may include from.
Rooms declared_rooms() {
  Rooms rooms;
  for (const std::string& line : split(read_file(source_dir() / "CMakeLists.txt"), '\n')) {
    if (!line.starts_with("hone_room(")) continue;
    std::istringstream words(line.substr(10, line.find(')') - 10));
    std::string room, word;
    words >> room;
    std::set<std::string>& visible = rooms[room];
    visible.insert(room);
    for (bool uses = false; words >> word;) {
      if (word == "USES" || word == "LIBRARIES") {
        uses = word == "USES";
      } else if (uses) {
        EXPECT_TRUE(rooms.contains(word)) << room << " uses " << word << ", which is not above it";
        visible.insert(rooms[word].begin(), rooms[word].end());
      }
    }
  }
  return rooms;
}

struct Compilation {
  bool succeeded = false;
  std::string messages;
};

// Compiles `source` with only the include paths of one room's target.
Compilation compile(const std::string& room, const std::string& source, const std::string& mode) {
  const TemporaryDirectory folder;
  write_file(folder.path() / "probe.cpp", source);
  std::string command = text_of("'", HONE_CXX, "' -std=c++20 ", mode);
  for (const std::string& path : split(read_file(fs::path(HONE_INCLUDE_LISTS) / (room + ".txt")), '\n')) {
    if (!path.empty()) command += text_of(" -I '", path, "'");
  }
  command += text_of(" '", (folder.path() / "probe.cpp").string(), "' > /dev/null 2> '",
                     (folder.path() / "messages").string(), "'");
  Compilation result;
  result.succeeded = std::system(command.c_str()) == 0;
  result.messages = read_file(folder.path() / "messages");
  return result;
}

struct IncludeCase {
  std::string room;
  std::string header;
  bool allowed;
};

TEST(Rooms, AForbiddenIncludeDoesNotCompile) {
  const std::vector<IncludeCase> cases{
      {"data", "text/tokenizer.h", true},    {"data", "engine/engine.h", false},
      {"engine", "model/model.h", true},     {"model", "engine/engine.h", false},
      {"program", "ops/add/add.h", false},   {"core", "backend/device.h", false},
      {"reward", "text/tokenizer.h", false}, {"train", "rl/grpo_task.h", false},
      {"model", "text/tokenizer.h", true},   {"jinja", "text/chat_template.h", false},
      {"sandbox", "reward/reward.h", false}, {"math_equality", "sandbox/runner.h", false},
      {"system", "sandbox/runner.h", false},
  };
  for (const IncludeCase& one : cases) {
    ASSERT_TRUE(fs::exists(source_dir() / "src" / one.header)) << one.header;
    const std::string source = "#include \"" + one.header + "\"\nint main() { return 0; }\n";
    const Compilation result = compile(one.room, source, "-fsyntax-only");
    EXPECT_EQ(result.succeeded, one.allowed) << one.room << " with " << one.header << "\n" << result.messages;
    if (!one.allowed) {
      EXPECT_NE(result.messages.find(one.header), std::string::npos) << result.messages;
      EXPECT_TRUE(result.messages.find("No such file") != std::string::npos ||
                  result.messages.find("file not found") != std::string::npos)
          << result.messages;
    }
  }
}

std::string first_header(const std::string& room) {
  std::vector<std::string> headers;
  for (const auto& entry : fs::recursive_directory_iterator(source_dir() / "src" / room)) {
    if (entry.path().extension() == ".h") headers.push_back(fs::relative(entry.path(), source_dir() / "src").string());
  }
  std::sort(headers.begin(), headers.end());
  return headers.empty() ? std::string() : headers.front();
}

TEST(Rooms, EachSeesWhatItNames) {
  const Rooms rooms = declared_rooms();
  ASSERT_GE(rooms.size(), 16u);
  for (const auto& [room, visible] : rooms) {
    std::string source;
    for (const auto& [other, unused] : rooms) {
      const std::string header = first_header(other);
      ASSERT_FALSE(header.empty()) << other;
      source += text_of("#if ", visible.contains(other) ? "!" : "", "__has_include(\"", header, "\")\n#error ", room,
                        visible.contains(other) ? " does not see " : " sees ", header, "\n#endif\n");
    }
    const Compilation result = compile(room, source, "-E");
    EXPECT_TRUE(result.succeeded) << result.messages;
  }
}

TEST(Rooms, EveryFolderIsOne) {
  const Rooms rooms = declared_rooms();
  for (const auto& entry : fs::directory_iterator(source_dir() / "src")) {
    if (entry.is_directory()) {
      EXPECT_TRUE(rooms.contains(entry.path().filename().string())) << entry.path();
    }
  }
}

}  // namespace
}  // namespace hone::test
