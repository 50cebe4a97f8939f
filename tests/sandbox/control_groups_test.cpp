// Control groups of the system itself. These tests need one that has been handed to this process, in which it is alone
// (`systemd-run --user --scope -p Delegate=yes build/tests/sandbox_test`), and are skipped elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/strings.h"
#include "sandbox/control_groups.h"
#include "sandbox/runner.h"
#include "support/sandbox.h"

#define SKIP_WITHOUT_CONTROL_GROUPS() \
  if (ControlGroups::create() == nullptr) GTEST_SKIP() << "no control group has been handed to this process alone"

namespace hone {
namespace {
namespace fs = std::filesystem;

// "0::/PATH", a line for each hierarchy of groups.
std::string own_groups() {
  std::ifstream in("/proc/self/cgroup");
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> groups_of_hone_below(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("hone-")) names.push_back(name);
  }
  return names;
}

TEST(ControlGroups, nothing_of_them_is_left) {
  SKIP_WITHOUT_SANDBOX();
  SKIP_WITHOUT_CONTROL_GROUPS();
  const std::string before = own_groups();
  if (before.find("/hone-") != std::string::npos) GTEST_SKIP() << "another test holds its sandbox";
  const fs::path folder = "/sys/fs/cgroup" + before.substr(3, before.find('\n') - 3);
  for (const SandboxMode mode : {SandboxMode::namespaces, SandboxMode::bubblewrap}) {
    {
      const Sandbox sandbox(mode);
      EXPECT_THAT(own_groups(), testing::HasSubstr(text_of("/hone-", getpid(), "\n")));
      const SandboxResult result = sandbox.run({.arguments = {"/bin/cat", "/proc/self/cgroup"}}, {}, {});
      EXPECT_THAT(result.output, testing::HasSubstr(text_of("/hone-program-", getpid(), "-0\n"))) << result.failure;
      EXPECT_THAT(groups_of_hone_below(folder), testing::Contains(text_of("hone-program-", getpid(), "-0")));
    }
    EXPECT_EQ(own_groups(), before);
    EXPECT_THAT(groups_of_hone_below(folder), testing::IsEmpty());
  }
}

// A program whose children fill 100 MiB each, which prints ok when all have done so.
std::string code_of_children(int children) {
  return text_of("import os, time\nfilled, said = os.pipe()\nfor i in range(", children,
                 "):\n"
                 "  if os.fork() == 0:\n"
                 "    x = b'x' * (100 << 20)\n"
                 "    os.write(said, b'x')\n"
                 "    time.sleep(1000)\n"
                 "for i in range(",
                 children, "): os.read(filled, 1)\nprint('ok')\n");
}

class ControlGroupOf : public testing::TestWithParam<SandboxMode> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_SANDBOX();
    SKIP_WITHOUT_CONTROL_GROUPS();
  }
  [[nodiscard]] static SandboxResult run_python(const std::string& code, std::uint64_t disk_bytes = 64ULL << 20) {
    const Sandbox sandbox(GetParam());
    SandboxProgram python = find_python(sandbox);
    python.arguments.insert(python.arguments.end(), {"-c", code});
    SandboxLimits limits;
    limits.wall_time = std::chrono::minutes(10);
    limits.memory_bytes = 256ULL << 20;
    limits.disk_bytes = disk_bytes;
    return sandbox.run(python, {}, limits);
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, ControlGroupOf, testing::Values(SandboxMode::namespaces, SandboxMode::bubblewrap),
                         [](const auto& mode) {
                           return mode.param == SandboxMode::namespaces ? "namespaces" : "bubblewrap";
                         });

// Each child stays below its own limit. Two of them fit into what the program may have; six do not.
TEST_P(ControlGroupOf, its_processes_share_the_memory_of_its_limit) {
  const SandboxResult few = run_python(code_of_children(2));
  EXPECT_TRUE(few.succeeded()) << few.exit_status << few.error << few.failure;
  EXPECT_EQ(few.output, "ok\n");
  const SandboxResult many = run_python(code_of_children(6));
  EXPECT_EQ(many.output, "");
  EXPECT_EQ(many.signal, SIGKILL);  // all of them are killed together, the first process of the sandbox among them
  EXPECT_EQ(many.failure, "");
  EXPECT_FALSE(many.timed_out);
}

// The group has memory_bytes, disk_bytes and 32 MiB: here 528 MiB. Four children or the files alone fit into that.
TEST_P(ControlGroupOf, its_files_count_as_memory) {
  const auto code = [](int children) {
    return text_of("import os, time\nfor i in range(29): open(f'f{i}', 'wb').write(b'x' * (8 << 20))\n",
                   code_of_children(children));
  };
  const SandboxResult few = run_python(code(2), 240ULL << 20);
  EXPECT_EQ(few.output, "ok\n") << few.exit_status << few.error << few.failure;
  const SandboxResult many = run_python(code(4), 240ULL << 20);
  EXPECT_EQ(many.output, "");
  EXPECT_EQ(many.signal, SIGKILL);
  EXPECT_EQ(many.failure, "");
  const SandboxResult without_files = run_python(code_of_children(4), 240ULL << 20);
  EXPECT_EQ(without_files.output, "ok\n") << without_files.exit_status << without_files.failure;
}

// On a machine of one processor it has no more in any case.
TEST_P(ControlGroupOf, its_processes_share_one_processor) {
  const SandboxResult result = run_python(
      "import os, time\n"
      "begin = time.monotonic()\n"
      "for i in range(4):\n"
      "  if os.fork() == 0:\n"
      "    while time.monotonic() < begin + 2: pass\n"
      "    os._exit(0)\n"
      "for i in range(4): os.wait()\n"
      "used = os.times().children_user + os.times().children_system\n"
      "passed = time.monotonic() - begin\n"
      "print('ok' if used < 1.3 * passed else f'{used} s of processors in {passed} s')\n");
  EXPECT_EQ(result.output, "ok\n") << result.error << result.failure;
}

}  // namespace
}  // namespace hone
