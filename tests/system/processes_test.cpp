// Tests of child processes, of servers that run this executable, and of waiting for them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>

#include "core/error.h"
#include "system/child.h"
#include "system/fork_server.h"
#include "system/hosted_process.h"
#include "system/poll.h"
#include "system/processor_time.h"
#include "system/streams.h"

namespace hone {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Worker that answers each byte with the next higher one and ends at a zero.
void serve_next_bytes(int channel) {
  for (char byte = 0; read_all(channel, {&byte, 1}) && byte != 0;) {
    ++byte;
    if (!write_all(channel, {&byte, 1})) return;
  }
}
constexpr ForkService kNextBytes{.name = "bytes", .memory_bytes = 1ULL << 30, .serve = serve_next_bytes};
__attribute__((constructor)) void become_byte_server_if_asked() { become_fork_server_if_asked(kNextBytes); }

bool is_process(pid_t id) { return ::kill(id, 0) == 0 || errno != ESRCH; }

std::string text_from(const Descriptor& pipe) {
  std::string text;
  std::array<char, 4096> bytes;
  while (wait_readable(pipe.number())) {
    const ssize_t count = ::read(pipe.number(), bytes.data(), bytes.size());
    if (count <= 0) break;
    text.append(bytes.data(), static_cast<std::size_t>(count));
  }
  return text;
}

char answer_of(const ForkedWorker& worker, char byte) {
  EXPECT_TRUE(write_all(worker.channel.number(), {&byte, 1}));
  EXPECT_TRUE(wait_readable(worker.channel.number(), milliseconds(60'000)));
  char answer = 0;
  EXPECT_TRUE(read_all(worker.channel.number(), {&answer, 1}));
  return answer;
}

TEST(Child, has_what_the_plan_says_and_nothing_else) {
  const Descriptor input = sealed_file("input\n");
  const Descriptor unrelated = sealed_file("");
  Pipe output = make_pipe();
  const pid_t id = start_child({.arguments = {"/bin/sh", "-c",
                                              "cat; echo \"$A<$HOME>\"; pwd; ulimit -n; "
                                              "ls /proc/self/fd | wc -l; exit 7"},
                                .environment = {"PATH=/usr/bin:/bin", "A=b"},
                                .folder = "/usr",
                                .descriptors = {input.number(), output.write.number(), output.write.number()},
                                .limits = {{RLIMIT_NOFILE, 33}}});
  output.write = Descriptor();
  // The fourth entry is the descriptor with which ls reads the folder.
  EXPECT_EQ(text_from(output.read), "input\nb<>\n/usr\n33\n4\n");
  const int status = wait_for_child(id);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(Child, an_executable_that_is_not_there_is_an_error) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer forks for vfork, so that the child cannot tell why exec failed";
#endif
  EXPECT_THROW((void)start_child({.arguments = {"/no/such/program"}}), Error);
}

TEST(Child, its_pidfd_tells_the_end) {
  const pid_t id = start_child({.executable = "/bin/sleep", .arguments = {"sleeper", "1000"}});
  const Descriptor process = open_process(id);
  ASSERT_TRUE(process.open());
  EXPECT_FALSE(wait_readable(process.number(), milliseconds(20)));
  EXPECT_FALSE(has_ended(id));
  kill_process(process);
  EXPECT_TRUE(wait_readable(process.number()));
  const int status = wait_for_child(id);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

TEST(ProcessorTime, counts_this_process_and_its_threads) {
  const ProcessorTime own = processor_time_of_tree(getpid());
  EXPECT_TRUE(own.is_wanted);
  EXPECT_GE(own.used.count(), 0);
  const ProcessorTime none = processor_time_of_tree(0x7FFFFFF0);
  EXPECT_FALSE(none.is_wanted);
  EXPECT_EQ(none.used.count(), 0);
  EXPECT_GT(processor_time_of(getpid()).count(), 0);
  EXPECT_EQ(processor_time_of(0x7FFFFFF0).count(), 0);
}

TEST(Poll, ends_at_the_deadline_and_says_what_is_ready) {
  Pipe pipe = make_pipe();
  std::array<pollfd, 2> entries{{{pipe.read.number(), POLLIN, 0}, {-1, POLLIN, 0}}};
  const Clock::time_point begin = Clock::now();
  EXPECT_EQ(poll_until(entries, begin + milliseconds(30)), 0);
  EXPECT_GE(Clock::now(), begin + milliseconds(30));
  EXPECT_EQ(poll_until(entries, begin), 0);  // a deadline in the past
  ASSERT_EQ(::write(pipe.write.number(), "x", 1), 1);
  EXPECT_EQ(poll_until(entries, kNoDeadline), 1);
  EXPECT_NE(entries[0].revents & POLLIN, 0);
  EXPECT_EQ(entries[1].revents, 0);
}

TEST(Streams, numbers_and_descriptors_pass_together) {
  const SocketPair sockets = make_socket_pair(SOCK_STREAM);
  const Descriptor file = sealed_file("content");
  const std::array<int, 2> sent{file.number(), sockets.ours.number()};
  ASSERT_TRUE(send_numbered(sockets.ours.number(), 42, sent));
  ASSERT_TRUE(send_numbered(sockets.ours.number(), -1, {}));
  NumberedDescriptors first;
  NumberedDescriptors second;
  ASSERT_TRUE(receive_numbered(sockets.theirs.number(), first));
  ASSERT_TRUE(receive_numbered(sockets.theirs.number(), second));
  EXPECT_EQ(first.number, 42);
  ASSERT_EQ(first.descriptors.size(), 2u);
  std::array<char, 16> bytes{};
  EXPECT_EQ(::pread(first.descriptors[0].number(), bytes.data(), bytes.size(), 0), 7);
  EXPECT_STREQ(bytes.data(), "content");
  EXPECT_EQ(second.number, -1);
  EXPECT_TRUE(second.descriptors.empty());
}

TEST(Streams, nobody_changes_a_sealed_file) {
  const Descriptor file = sealed_file("content");
  EXPECT_LT(::write(file.number(), "x", 1), 0);
  EXPECT_LT(::ftruncate(file.number(), 0), 0);
}

TEST(ForkServer, its_workers_serve_and_end_with_it) {
  ForkedWorker kept;
  {
    ForkServer server(kNextBytes);
    const ForkedWorker worker = server.fork();
    kept = server.fork();
    EXPECT_EQ(answer_of(worker, 'a'), 'b');
    EXPECT_EQ(answer_of(kept, 'x'), 'y');
    server.kill(worker.id);
    EXPECT_TRUE(wait_readable(worker.channel.number()));
    char byte = 0;
    EXPECT_FALSE(read_all(worker.channel.number(), {&byte, 1}));
    EXPECT_EQ(answer_of(kept, 'y'), 'z');
  }
  EXPECT_FALSE(is_process(kept.id));
}

TEST(HostedProcess, answers_a_line_with_a_line) {
  HostedProcess process({"/bin/sh", "-c", "while read line; do echo said >&2; echo \"<$line>\" >&0; done"});
  EXPECT_EQ(process.ask("one", milliseconds(60'000), 100), "<one>");
  EXPECT_EQ(process.take_said(), "said\n");
  EXPECT_EQ(process.ask("two", milliseconds(60'000), 100), "<two>");
}

TEST(HostedProcess, says_why_there_is_no_answer) {
  HostedProcess ends({"/bin/sh", "-c", "read line; exit 3"});
  HostedProcess sleeps({"/bin/sleep", "1000"});
  try {
    (void)ends.ask("line", milliseconds(60'000), 100);
    FAIL();
  } catch (const HostedProcess::Failure& failure) {
    EXPECT_EQ(failure.what, "it exited with status 3");
    EXPECT_FALSE(failure.timed_out);
  }
  try {
    (void)sleeps.ask("line", milliseconds(50), 100);
    FAIL();
  } catch (const HostedProcess::Failure& failure) {
    EXPECT_TRUE(failure.timed_out);
  }
}

}  // namespace
}  // namespace hone
