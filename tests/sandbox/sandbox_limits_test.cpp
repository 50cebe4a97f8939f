// Tests the limits on time, memory and files, and their effect on other programs. The tests do not depend on the speed
// of the machine: a time limit is either never reached or reached by a program that would run forever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "reward/registry.h"
#include "sandbox/compiler.h"
#include "sandbox/control_groups.h"
#include "sandbox/runner.h"
#include "sandbox/world.h"
#include "support/paths.h"
#include "support/sandbox.h"

namespace hone {
namespace {
namespace fs = std::filesystem;
using std::chrono::milliseconds;

class SandboxLimitsOf : public testing::TestWithParam<SandboxMode> {
 protected:
  void SetUp() override { SKIP_WITHOUT_SANDBOX(); }
  [[nodiscard]] static SandboxResult run(const std::string& script, const SandboxLimits& limits = {}) {
    return Sandbox(GetParam()).run({.arguments = {"/bin/sh", "-c", script}}, {}, limits);
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, SandboxLimitsOf, testing::Values(SandboxMode::kNamespaces, SandboxMode::kBubblewrap),
                         [](const auto& mode) {
                           return mode.param == SandboxMode::kNamespaces ? "namespaces" : "bubblewrap";
                         });

TEST_P(SandboxLimitsOf, who_says_nothing_is_ended) {
  SandboxLimits limits;
  limits.wall_time = std::chrono::hours(10);
  limits.silence = milliseconds(200);
  const SandboxResult quiet = run("echo one; sleep 100000", limits);
  EXPECT_TRUE(quiet.timed_out);
  EXPECT_EQ(quiet.output, "one\n");
  limits.silence = std::chrono::hours(10);
  EXPECT_TRUE(run("echo one; echo two", limits).succeeded());
}

TEST_P(SandboxLimitsOf, a_descriptor_stops_it) {
  const Descriptor stop(eventfd(1, EFD_CLOEXEC));
  SandboxLimits limits;
  limits.wall_time = std::chrono::hours(10);
  limits.stop = stop.number();
  const SandboxResult stopped = run("sleep 100000", limits);
  EXPECT_FALSE(stopped.succeeded());
  EXPECT_FALSE(stopped.timed_out);
  EXPECT_EQ(stopped.failure, "");
}

TEST_P(SandboxLimitsOf, little_of_standard_error_is_kept) {
  const SandboxResult result = run("head -c 300000 /dev/zero >&2; echo done");
  EXPECT_TRUE(result.succeeded());
  EXPECT_EQ(result.output, "done\n");
  EXPECT_EQ(result.error.size(), 65'536u);
}

// Bubblewrap and the processes of the sandbox belong to the same user, so a program can stop or kill bubblewrap.
TEST_P(SandboxLimitsOf, a_sandbox_that_is_stopped_ends_at_its_limit) {
  SandboxLimits limits;
  limits.wall_time = milliseconds(200);
  const SandboxResult stopped = run("kill -STOP 0; sleep 100000", limits);
  EXPECT_TRUE(stopped.timed_out);
  EXPECT_EQ(stopped.failure, "");
  const SandboxResult killed = run("kill -KILL 0; sleep 100000");
  EXPECT_FALSE(killed.succeeded());
  EXPECT_EQ(killed.failure, "");
}

// Runs an attack that keeps all processors busy with as many processes as it may have, together with an honest program
// that needs 0.5 s of CPU time and must get it.
TEST_P(SandboxLimitsOf, spinning_programs_do_not_take_the_time_of_others) {
  const Sandbox sandbox(GetParam());
  const SandboxProgram python = find_python(sandbox);
  SandboxProgram spinning = python;
  spinning.arguments.insert(spinning.arguments.end(), {"-c",
                                                       "import os\n"
                                                       "for i in range(40):\n"
                                                       "  try:\n"
                                                       "    if os.fork() == 0: break\n"
                                                       "  except OSError: break\n"
                                                       "while True: pass\n"});
  SandboxProgram honest = python;
  honest.arguments.insert(honest.arguments.end(), {"-c",
                                                   "import time\n"
                                                   "while time.process_time() < 0.5: pass\n"
                                                   "print('done')\n"});
  SandboxLimits limits;
  limits.wall_time = milliseconds(1200);
  limits.processes = 32;
  const SandboxTask attack{&spinning, {}, limits};
  const SandboxTask work{&honest, {}, limits};
  const std::vector<SandboxTask> tasks = {attack, attack, work, work};
  const std::vector<SandboxResult> results = sandbox.run(tasks, static_cast<int>(tasks.size()));
  EXPECT_TRUE(results[0].timed_out);
  EXPECT_TRUE(results[1].timed_out);
  for (const std::size_t i : {2u, 3u}) {
    EXPECT_EQ(results[i].output, "done\n") << results[i].error;
    EXPECT_TRUE(results[i].succeeded());
  }
}

// --- Hidden files

TEST(HiddenPaths, may_not_lie_below_what_programs_read) {
  const test::TemporaryDirectory folder;
  const fs::path lib = folder.path() / "env" / "lib";
  fs::create_directories(lib);
  fs::create_symlink(lib, folder.path() / "link");
  const std::vector<std::string> shown = {lib.string()};
  const auto refused = [&](const fs::path& path) {
    const std::vector<std::string> hidden = {path.string()};
    try {
      check_hidden(hidden, shown);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("is below " + lib.string()));
      return true;
    }
    return false;
  };
  EXPECT_TRUE(refused(lib));
  EXPECT_TRUE(refused(lib / "data.jsonl"));
  EXPECT_TRUE(refused(lib / ".." / "lib" / "new" / "output"));
  EXPECT_TRUE(refused(folder.path() / "link" / "data"));
  EXPECT_FALSE(refused(folder.path()));
  EXPECT_FALSE(refused(folder.path() / "env" / "library"));
  EXPECT_FALSE(refused(folder.path() / "env" / "data.jsonl"));
  EXPECT_FALSE(refused("org/data"));
  EXPECT_THROW(check_hidden({}, std::vector<std::string>{fs::current_path().parent_path().string()}), Error);
}

TEST(HiddenPaths, only_parts_of_usr_are_shown) {
  for (const LaunchMount& mount : make_world().mounts) {
    EXPECT_NE(mount.from, "/usr");
    EXPECT_NE(mount.from, "/usr/local");
    EXPECT_NE(mount.from, "/usr/share");
  }
  EXPECT_TRUE(readable_parts("/usr").empty());
}

// The virtual environment is the folder of the project itself, as after `python3 -m venv .`, and PATH leads to its
// Python.
TEST_P(SandboxLimitsOf, an_environment_shows_nothing_of_its_project) {
  const test::TemporaryDirectory project;
  const fs::path root = project.path();
  fs::permissions(root, fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec | fs::perms::group_read |
                            fs::perms::others_read);
  // The interpreter itself, which may be that of an environment on this machine.
  const fs::path system = fs::canonical(find_python(Sandbox(GetParam())).arguments[0]);
  fs::create_directories(root / "bin");
  fs::create_directories(root / "lib");
  fs::create_symlink(system, root / "bin" / "python3");
  std::ofstream(root / "pyvenv.cfg") << "home = " << system.parent_path().string() << "\n";
  std::ofstream(root / ".env") << "key";
  std::ofstream(root / "data.jsonl") << "answers";
  std::ofstream(root / "lib" / "module") << "seen";
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", ((root / "bin").string() + ":" + path).c_str(), 1);
  const Sandbox sandbox(GetParam(), {(root / "data.jsonl").string()});
  SandboxProgram python = find_python(sandbox);
  EXPECT_THROW((void)find_python(Sandbox(GetParam(), {(root / "lib" / "data.jsonl").string()})), Error);
  ::setenv("PATH", path.c_str(), 1);
  python.arguments.insert(python.arguments.end(), {"-c",
                                                   "import sys, os\n"
                                                   "print(sorted(os.listdir(sys.prefix)))\n"
                                                   "print(open(sys.prefix + '/lib/module').read())\n"
                                                   "print(open(sys.prefix + '/data.jsonl').read())\n"});
  const SandboxResult result = sandbox.run(python, {}, {});
  EXPECT_EQ(result.output, "['bin', 'lib', 'pyvenv.cfg']\nseen\n") << result.error << result.failure;
  EXPECT_THAT(result.error, testing::HasSubstr("FileNotFoundError"));
}

// --- Memory

TEST(CompilerLimits, large_binaries_and_long_messages_are_cut) {
  SKIP_WITHOUT_SANDBOX();
  const Sandbox sandbox(SandboxMode::kNamespaces);
  CppCompiler compiler(sandbox);
  const auto compile = [&](const std::string& code) {
    return compiler.compile({.flags = {}, .files = {{"a.cpp", code}}, .sources = {"a.cpp"}});
  };
  EXPECT_GT(compile("int main() {}")->binary.size(), 1000u);
  const std::size_t most = kMostBinaryBytes;
  EXPECT_EQ(compile(text_of("char all[", most, "] = {1}; int main() {}"))->binary, "");
  std::string wrong;
  for (int i = 0; i < 3000; ++i) wrong += text_of("int f", i, "() { return missing", i, "; }\n");
  const auto messages = compile(wrong);
  EXPECT_EQ(messages->binary, "");
  EXPECT_LE(messages->messages.size(), 65'536u);
  EXPECT_GT(messages->messages.size(), 10'000u);
}

// Returns the peak resident memory in KiB. Writing 5 to /proc/self/clear_refs resets it.
std::size_t peak_kib() {
  std::ifstream in("/proc/self/status");
  std::string line;
  while (std::getline(in, line)) {
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10);
  }
  return 0;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers keep freed memory
TEST(CodeMemory, outputs_are_compared_and_dropped) {
  SKIP_WITHOUT_SANDBOX();
  constexpr int kCases = 60;
  Json cases = Json::array();
  for (int i = 0; i < kCases; ++i) cases.push_back({{"input", ""}, {"output", "x"}});
  const Json row = {{"verification_info", {{"language", "python"}, {"test_cases", cases}}}};
  const std::string completion = "```python\nprint('x' * 1000000)\n```";
  RewardRegistry registry;
  register_all_reward(registry);
  const Reward code = registry.make("code", {});
  const RewardInput input{.completion = completion, .row = &row};
  if (!(std::ofstream("/proc/self/clear_refs") << "5" << std::flush))
    GTEST_SKIP() << "the peak of resident memory cannot be reset";
  const std::size_t before = peak_kib();
  EXPECT_EQ(code.score({&input, 1}), RewardScores{0.0});
  EXPECT_LT(peak_kib(), before + kCases * 1000 / 2);
}
#endif

// Uses ordinary folders with the files of control groups.
TEST(ControlGroups, each_program_has_one_with_limits) {
  const test::TemporaryDirectory folder;
  const auto group = [&](int index) { return folder.path() / text_of("hone-program-", getpid(), "-", index); };
  for (const int index : {0, 1}) {
    fs::create_directories(group(index));
    for (const char* name :
         {"memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max", "cgroup.procs"}) {
      std::ofstream(group(index) / name) << "";
    }
  }
  const auto content = [&](int index, const char* name) {
    std::ifstream in(group(index) / name);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  ControlGroups groups(folder.path().string());
  {
    const ControlGroups::Place first = groups.take({.memory_bytes = 1ULL << 30, .processes = 10});
    const ControlGroups::Place second = groups.take({.memory_bytes = 1ULL << 20, .processes = 4});
    ASSERT_EQ(::write(second.processes(), "0", 1), 1);
  }
  EXPECT_EQ(content(0, "memory.max"), std::to_string((1ULL << 30) + (32ULL << 20)));
  EXPECT_EQ(content(0, "pids.max"), "14");
  EXPECT_EQ(content(0, "cpu.max"), "100000 100000");
  EXPECT_EQ(content(0, "memory.oom.group"), "1");
  EXPECT_EQ(content(0, "cgroup.procs"), "");
  EXPECT_EQ(content(1, "cgroup.procs"), "0");
  EXPECT_GE(groups.take({}).processes(), 0);  // reuses the first group
  const ControlGroups::Place again = groups.take({});
  const ControlGroups::Place other = groups.take({});
  EXPECT_THROW((void)groups.take({}), Error);  // there is no third folder
}

// --- Starting programs

// The limit on descriptors in flight applies to all processes of a user together.
TEST(Launcher, waits_where_descriptors_of_the_user_are_under_way) {
  SKIP_WITHOUT_SANDBOX();
  if (geteuid() == 0) GTEST_SKIP() << "the limit does not apply to root";
  const pid_t child = fork();
  if (child == 0) {
    constexpr int kFew = 256;
    const rlimit few{kFew, kFew};
    int ends[2];
    if (setrlimit(RLIMIT_NOFILE, &few) != 0 || socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) != 0) ::_exit(2);
    const auto sandbox = std::make_unique<Sandbox>(SandboxMode::kNamespaces);
    std::vector<int> numbers(250, 0);
    std::vector<char> control(CMSG_SPACE(numbers.size() * sizeof(int)));
    iovec part{numbers.data(), 1};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(numbers.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), numbers.data(), numbers.size() * sizeof(int));
    int sent = 0;
    while (sendmsg(ends[0], &message, MSG_DONTWAIT) > 0) ++sent;
    if (sent == 0 || errno != ETOOMANYREFS) ::_exit(3);
    std::thread receiving([&] {  // closing the socket later drops the descriptors in flight
      usleep(100'000);
      close(ends[1]);
    });
    int failed = 1;
    try {
      failed = sandbox->run({.arguments = {"/bin/true"}}, {}, {}).succeeded() ? 0 : 4;
    } catch (const Error&) {
    }
    receiving.join();
    ::_exit(failed);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace hone
