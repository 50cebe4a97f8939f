// Tests the launcher of sandboxes when the system refuses a step: it waits for the end of a shortage and reports a
// lasting refusal immediately. Attempts are counted by the pauses between them, which take no time here.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "core/error.h"
#include "core/strings.h"
#include "sandbox/launcher.h"
#include "sandbox/seccomp_filter.h"
#include "sandbox/world.h"
#include "support/sandbox.h"
#include "system/child.h"
#include "system/streams.h"

namespace hone {
namespace {
namespace fs = std::filesystem;

constexpr unsigned kNoArgument = 0;

// From now on this process, and all that it starts, are refused the system call; with an argument only where the first
// one has that bit.
void refuse(int call, std::uint32_t action, unsigned bit = kNoArgument) {
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  const int added = bit == kNoArgument
                        ? seccomp_rule_add(filter, action, call, 0)
                        : seccomp_rule_add(filter, action, call, 1, SCMP_A0_32(SCMP_CMP_MASKED_EQ, bit, bit));
  if (added != 0 || seccomp_load(filter) != 0) ::_exit(3);
  seccomp_release(filter);
}

// Launches /bin/true. "PAUSES pauses: ERROR", or what the sandbox's first process says.
std::string launch_once(Launcher& launcher, const int& pauses) {
  LaunchPlan plan{.arguments = {"/bin/true"},
                  .environment = {},
                  .world = make_world(),
                  .files = {},
                  .pipes = {},
                  .limits = {},
                  .disk_bytes = 1 << 20,
                  .filter = seccomp_filter()};
  const Descriptor nothing = sealed_file({});
  Pipe status = make_pipe();
  std::string said;
  try {
    const Descriptor process = launcher.launch(plan, {.input = nothing.number(),
                                                      .output = nothing.number(),
                                                      .error = nothing.number(),
                                                      .status = status.write.number()});
    status.write = Descriptor();
    if (::fcntl(status.read.number(), F_SETFL, 0) != 0) ::_exit(4);  // reads are to wait
    std::array<char, 512> bytes;
    for (ssize_t count = 0; (count = ::read(status.read.number(), bytes.data(), bytes.size())) > 0;) {
      said.append(bytes.data(), static_cast<std::size_t>(count));
    }
  } catch (const Error& error) {
    said = error.what();
  }
  return text_of(pauses, " pauses: ", trim(said));
}

// In a child process, which refuses itself something first.
std::string launched_after(const std::function<void()>& refuse_something) {
  Pipe pipe = make_pipe();
  const pid_t child = fork();
  if (child == 0) {
    refuse_something();
    int pauses = 0;
    Launcher launcher(geteuid() == 0, [&](std::chrono::milliseconds) { ++pauses; });
    const std::string said = launch_once(launcher, pauses);
    ::_exit(::write(pipe.write.number(), said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 2);
  }
  pipe.write = Descriptor();
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::array<char, 4096> bytes;
  const ssize_t count = ::read(pipe.read.number(), bytes.data(), bytes.size());
  return {bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
}

TEST(LauncherRefused, lasting_refusals_are_reported_at_once) {
  SKIP_WITHOUT_SANDBOX();
  for (const int error : {EPERM, ENOSYS, EINVAL, ENOSPC}) {
    const std::string reason = std::strerror(error);
    const std::uint32_t action = SCMP_ACT_ERRNO(error);
    EXPECT_EQ(launched_after([&] { refuse(SCMP_SYS(unshare), action, CLONE_NEWUSER); }),
              "0 pauses: starting a program: a new user namespace: " + reason);
    EXPECT_EQ(launched_after([&] { refuse(SCMP_SYS(unshare), action, CLONE_NEWNET); }),
              "0 pauses: starting a program: a new network namespace: " + reason);
    EXPECT_EQ(launched_after([&] { refuse(SCMP_SYS(clone), action, CLONE_NEWPID); }),
              "0 pauses: starting a program: a process in new namespaces: " + reason);
    EXPECT_EQ(launched_after([&] { refuse(SCMP_SYS(pidfd_open), action); }),
              "0 pauses: starting a program: pidfd_open: " + reason);
    if (geteuid() != 0) continue;
    EXPECT_EQ(launched_after([&] { refuse(SCMP_SYS(setresuid), action); }),
              "0 pauses: starting a program: changing from root to nobody: " + reason);
  }
}

// Refused to the first process of the sandbox, which says so itself.
TEST(LauncherRefused, mounts_are_reported_at_once) {
  SKIP_WITHOUT_SANDBOX();
  const std::string said = launched_after([] { refuse(SCMP_SYS(mount), SCMP_ACT_ERRNO(EPERM)); });
  EXPECT_THAT(said, testing::StartsWith("0 pauses: failed "));
  EXPECT_THAT(said, testing::EndsWith(std::strerror(EPERM)));
}

TEST(LauncherRefused, shortages_are_waited_for) {
  SKIP_WITHOUT_SANDBOX();
  EXPECT_EQ(launched_after([] {}), "0 pauses: began\nended 0");
  for (const int error : {EAGAIN, ENOMEM}) {
    const std::string reason = std::strerror(error);
    EXPECT_EQ(launched_after([&] { refuse(SCMP_SYS(clone), SCMP_ACT_ERRNO(error), CLONE_NEWPID); }),
              "11 pauses: starting a program: a process in new namespaces: " + reason);
    EXPECT_EQ(launched_after([&] { refuse(SCMP_SYS(unshare), SCMP_ACT_ERRNO(error), CLONE_NEWUSER); }),
              "11 pauses: starting a program: a new user namespace: " + reason);
  }
}

TEST(LauncherRefused, a_server_that_ends_at_once_is_not_started_again) {
  SKIP_WITHOUT_SANDBOX();
  EXPECT_EQ(launched_after([] { refuse(SCMP_SYS(unshare), SCMP_ACT_KILL_PROCESS); }),
            text_of("0 pauses: starting a program: the server that starts them ended early: signal ", SIGSYS));
}

// A child of this process, found by the name that its plan gives it.
pid_t server_of_this_process() {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string command;
    std::getline(std::ifstream(entry.path() / "cmdline"), command, '\0');
    std::ifstream in(entry.path() / "status");
    const std::string status{std::istreambuf_iterator<char>(in), {}};
    const bool is_child = status.find(text_of("\nPPid:\t", getpid(), "\n")) != std::string::npos;
    if (is_child && command == "hone-programs") return std::stoi(name);
  }
  return 0;
}

TEST(LauncherRefused, a_server_that_was_killed_is_replaced) {
  SKIP_WITHOUT_SANDBOX();
  int pauses = 0;
  Launcher launcher(geteuid() == 0, [&](std::chrono::milliseconds) { ++pauses; });
  const pid_t before = server_of_this_process();  // of another test
  if (before != 0) GTEST_SKIP() << "another test holds its sandbox";
  EXPECT_EQ(launch_once(launcher, pauses), "0 pauses: began\nended 0");
  const pid_t server = server_of_this_process();
  ASSERT_GT(server, 0);
  const Descriptor process = open_process(server);
  kill_process(process);
  EXPECT_EQ(launch_once(launcher, pauses), "0 pauses: began\nended 0");
  EXPECT_NE(server_of_this_process(), server);
}

// The server receives two of the five descriptors of a request: the program waits, as those that run already would.
TEST(LauncherRefused, a_server_without_room_for_descriptors_goes_on) {
  SKIP_WITHOUT_SANDBOX();
  if (server_of_this_process() != 0) GTEST_SKIP() << "another test holds its sandbox";
  int pauses = 0;
  pid_t server = 0;
  const auto limit_files = [&](rlim_t most) {
    rlimit limit{};
    ASSERT_EQ(::prlimit(server, RLIMIT_NOFILE, nullptr, &limit), 0);  // of this process's user
    limit.rlim_cur = most;
    ASSERT_EQ(::prlimit(server, RLIMIT_NOFILE, &limit, nullptr), 0);
  };
  Launcher launcher(false, [&](std::chrono::milliseconds) {
    if (++pauses == 3) limit_files(64);
  });
  EXPECT_EQ(launch_once(launcher, pauses), "0 pauses: began\nended 0");
  server = server_of_this_process();
  ASSERT_GT(server, 0);
  const auto files = std::distance(fs::directory_iterator(text_of("/proc/", server, "/fd")), {});
  limit_files(static_cast<rlim_t>(files) + 2);
  EXPECT_EQ(launch_once(launcher, pauses), "3 pauses: began\nended 0");
  EXPECT_EQ(server_of_this_process(), server);
}

}  // namespace
}  // namespace hone
