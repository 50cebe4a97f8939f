// Control groups of the system itself. These tests need one that has been handed to this process, in which it is alone
// (`systemd-run --user --scope -p Delegate=yes build/tests/sandbox_test`), and are skipped elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/strings.h"
#include "sandbox/control_groups.h"
#include "sandbox/runner.h"
#include "support/paths.h"
#include "support/sandbox.h"
#include "system/child.h"
#include "system/poll.h"
#include "system/streams.h"

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
  for (const SandboxMode mode : {SandboxMode::kNamespaces, SandboxMode::kBubblewrap}) {
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

bool can_put(const fs::path& file, const char* text) {
  std::ofstream out(file);
  return static_cast<bool>(out << text << std::flush);
}

// Takes two groups, starts a process in the first, as a run starts a program, and waits to be killed.
[[noreturn]] void run_until_killed(int told) {
  const std::shared_ptr<ControlGroups> groups = ControlGroups::create();
  if (groups == nullptr) ::_exit(1);
  const ControlGroups::Place used = groups->take({.memory_bytes = 64ULL << 20, .processes = 2});
  const ControlGroups::Place unused = groups->take({.memory_bytes = 64ULL << 20, .processes = 2});
  const pid_t program = fork();
  if (program == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (write(used.processes(), "0", 1) != 1 || write(told, "x", 1) != 1) ::_exit(1);
  }
  for (;;) pause();
}

// The killed run leaves hone-PID and two groups of programs. The first of them contains a process that still ends.
TEST(ControlGroups, those_of_a_killed_run_are_removed_at_the_next_start) {
  SKIP_WITHOUT_CONTROL_GROUPS();
  const std::string before = own_groups();
  if (before.find("/hone-") != std::string::npos) GTEST_SKIP() << "another test holds its sandbox";
  const fs::path folder = "/sys/fs/cgroup" + before.substr(3, before.find('\n') - 3);
  // The run starts alone in a separate group: this process would keep controllers from being enabled in its own.
  const fs::path inner = folder / "killed-run";
  const fs::path aside = folder / "aside";
  for (const fs::path& path : {inner, aside}) ASSERT_TRUE(fs::create_directory(path));
  EXPECT_TRUE(can_put(aside / "cgroup.procs", "0"));
  EXPECT_TRUE(can_put(folder / "cgroup.subtree_control", "+memory +cpu +pids"));
  const bool is_marked = geteuid() != 0 || setxattr(inner.c_str(), "trusted.delegate", "1", 1, 0) == 0;
  ASSERT_TRUE(is_marked) << std::strerror(errno);
  const Pipe told = make_pipe();
  const auto start = [&](const auto& run) {
    const pid_t child = fork();
    if (child == 0) {
      if (!can_put(inner / "cgroup.procs", "0")) ::_exit(2);
      run();
      ::_exit(0);
    }
    return child;
  };
  const pid_t killed = start([&] { run_until_killed(told.write.number()); });
  EXPECT_TRUE(wait_readable(told.read.number(), std::chrono::minutes(5)));
  EXPECT_THAT(groups_of_hone_below(inner),
              testing::UnorderedElementsAre(text_of("hone-", killed), text_of("hone-program-", killed, "-0"),
                                            text_of("hone-program-", killed, "-1")));
  EXPECT_EQ(kill(killed, SIGKILL), 0);
  EXPECT_EQ(wait_for_child(killed), SIGKILL);
  EXPECT_THAT(groups_of_hone_below(inner), testing::SizeIs(3));  // a kill removes nothing
  // The kernel refuses a process in a group whose controllers are enabled for its children. The manager disables them.
  EXPECT_FALSE(can_put(inner / "cgroup.procs", "0"));
  EXPECT_TRUE(can_put(inner / "cgroup.subtree_control", "-memory -cpu -pids"));
  const pid_t next = start([&] {
    const std::shared_ptr<ControlGroups> groups = ControlGroups::create();
    const bool is_alone = groups_of_hone_below(inner) == std::vector{text_of("hone-", getpid())};
    if (groups == nullptr || !is_alone) ::_exit(1);
  });
  EXPECT_EQ(wait_for_child(next), 0);
  EXPECT_TRUE(can_put(folder / "cgroup.subtree_control", "-memory -cpu -pids"));
  EXPECT_TRUE(can_put(folder / "cgroup.procs", "0"));
  for (const fs::path& path : {inner, aside}) EXPECT_EQ(rmdir(path.c_str()), 0) << path << ": " << std::strerror(errno);
  EXPECT_EQ(own_groups(), before);
}

// RLIMIT_NPROC, which counts the processes of the sandbox's user, stops a program of the sandbox before pids.max does:
// pids.max leaves 4 more processes for what starts the program. Here pids.max alone is in force.
TEST(ControlGroups, count_the_processes_that_fork_without_end) {
  SKIP_WITHOUT_CONTROL_GROUPS();
  constexpr int kProcesses = 5;
  constexpr int kEnough = 64;  // forks after which nothing has stopped the program
  const std::shared_ptr<ControlGroups> groups = ControlGroups::create();
  const ControlGroups::Place place = groups->take({.memory_bytes = 256ULL << 20, .processes = kProcesses});
  const pid_t program = fork();
  if (program == 0) {
    if (write(place.processes(), "0", 1) != 1) ::_exit(kEnough + 1);
    std::vector<pid_t> children;
    pid_t child = 0;
    while (children.size() < kEnough && (child = fork()) > 0) children.push_back(child);
    if (child == 0) {
      for (;;) pause();
    }
    const bool is_refused = child < 0 && errno == EAGAIN;
    for (const pid_t id : children) {
      (void)kill(id, SIGKILL);
      (void)wait_for_child(id);
    }
    ::_exit(is_refused ? static_cast<int>(children.size()) : kEnough);
  }
  const int status = wait_for_child(program);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), kProcesses + 4 - 1);  // the program itself is one of them
}

// Ordinary folders stand for groups here. A folder that contains something stands for a group with processes.
TEST(ControlGroups, only_those_of_killed_runs_are_removed) {
  const test::TemporaryDirectory folder;
  const auto text = [](auto... parts) { return text_of(parts...); };
  const pid_t self = getpid();
  const pid_t other = getppid();  // runs, but is no run of hone: the id of a killed run was given to it
  const pid_t gone = start_child({.arguments = {"/bin/true"}});
  (void)wait_for_child(gone);
  const std::vector<std::string> left = {text("hone-", gone), text("hone-program-", gone, "-0"),
                                         text("hone-program-", gone, "-17"), text("hone-", other),
                                         text("hone-program-", other, "-3")};
  const std::vector<std::string> kept = {text("hone-", self),
                                         text("hone-program-", self, "-0"),
                                         "hone-",
                                         "hone-x",
                                         "hone-program-",
                                         "honest-7",
                                         text("other-", gone),
                                         "user.slice"};
  for (const std::string& name : left) fs::create_directory(folder.path() / name);
  for (const std::string& name : kept) fs::create_directory(folder.path() / name);
  std::ofstream(folder.path() / text("hone-", self) / "cgroup.procs") << "1\n" << self << "\n";
  const std::string used = text("hone-program-", gone, "-1");
  fs::create_directories(folder.path() / used / "process");
  EXPECT_TRUE(remove_groups_of_killed_processes(folder.path().string()));
  std::vector<std::string> expected = kept;
  expected.push_back(used);
  EXPECT_THAT(list_folder(folder.path()), testing::UnorderedElementsAreArray(expected));
  EXPECT_TRUE(remove_groups_of_killed_processes((folder.path() / "none").string()));
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

INSTANTIATE_TEST_SUITE_P(Modes, ControlGroupOf, testing::Values(SandboxMode::kNamespaces, SandboxMode::kBubblewrap),
                         [](const auto& mode) {
                           return mode.param == SandboxMode::kNamespaces ? "namespaces" : "bubblewrap";
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
