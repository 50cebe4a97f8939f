#include "system/launcher.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/job_log.h"
#include "core/strings.h"
#include "system/child.h"
#include "system/meeting.h"
#include "system/poll.h"

namespace hone {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kGrace = std::chrono::seconds(30);       // for the other ranks after one has failed
constexpr auto kLook = std::chrono::milliseconds(200);  // between looks for Ctrl+C
constexpr int kListenerDescriptor = 3;

struct Rank {
  pid_t id = 0;
  Descriptor process;  // a pidfd
  bool ended = false;
};

// The end of a rank that did not exit with 0.
struct FirstFailure {
  int rank = -1;
  int status = 0;
};

std::string random_key() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw Error("the job's key", std::strerror(errno));
  }
  std::string key;
  for (const unsigned char byte : bytes) key += "0123456789abcdef"[byte >> 4], key += "0123456789abcdef"[byte & 15];
  return key;
}

// The environment of rank `local.first + index`.
std::vector<std::string> environment_of(const LocalRanks& local, int index) {
  std::vector<std::string> all = environment_of_one(local.count);
  all.push_back(text_of("RANK=", local.first + index));
  all.push_back(text_of("WORLD_SIZE=", local.total));
  all.push_back(text_of("LOCAL_RANK=", index));
  all.push_back(text_of("LOCAL_WORLD_SIZE=", local.count));
  all.push_back(text_of("MASTER_ADDR=", local.address));
  all.push_back(text_of("MASTER_PORT=", local.port));
  all.push_back(text_of("HONE_JOB_KEY=", local.key));
  if (local.first + index == 0) all.push_back(text_of("HONE_JOB_LISTENER=", kListenerDescriptor));
  return all;
}

std::vector<Rank> start_ranks(LocalRanks local, const std::vector<std::string>& arguments) {
  // The port is taken before a process starts, so that no other program can take it meanwhile.
  Listener listener;
  if (local.first == 0) listener = listen_on(local.port, local.address.empty());
  if (local.address.empty()) {
    local.address = "127.0.0.1";
    local.port = listener.port;
    local.key = random_key();
  }
  std::vector<Rank> ranks(static_cast<std::size_t>(local.count));
  for (int r = 0; r < local.count; ++r) {
    ChildPlan plan{.executable = "/proc/self/exe",
                   .arguments = arguments,
                   .environment = environment_of(local, r),
                   .folder = {},
                   .descriptors = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO},
                   .limits = {},
                   .dies_with_thread = true,
                   .spare_from_oom = true};
    if (local.first + r == 0) plan.descriptors.push_back(listener.socket.number());
    Rank& rank = ranks[static_cast<std::size_t>(r)];
    rank.id = start_child(plan);
    rank.process = open_process(rank.id);
  }
  return ranks;
}

bool succeeded(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

// Reaps ranks that have ended. Records the first one that failed, and whether one has reported the loss of another.
void reap(std::vector<Rank>& ranks, FirstFailure& failure, bool& reported) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    int status = 0;
    if (ranks[r].ended || ::waitpid(ranks[r].id, &status, WNOHANG) != ranks[r].id) continue;
    ranks[r].ended = true;
    reported = reported || (WIFEXITED(status) && WEXITSTATUS(status) == kExitLostRank);
    // The signal of a killed rank is the cause if others that noticed ended first.
    const bool is_cause = failure.rank < 0 || (WIFSIGNALED(status) && !WIFSIGNALED(failure.status));
    if (!succeeded(status) && is_cause) failure = {static_cast<int>(r), status};
  }
}

}  // namespace

std::vector<std::string> environment_of_one(int count) {
  constexpr std::array<std::string_view, 9> kOfRanks{
      "RANK=",        "WORLD_SIZE=",   "LOCAL_RANK=",        "LOCAL_WORLD_SIZE=", "MASTER_ADDR=",
      "MASTER_PORT=", "HONE_JOB_KEY=", "HONE_JOB_LISTENER=", "TORCHELASTIC_"};
  std::vector<std::string> all;
  bool has_threads = false;
  for (std::string& variable : current_environment()) {
    if (std::ranges::any_of(kOfRanks, [&](std::string_view name) { return variable.starts_with(name); })) continue;
    has_threads = has_threads || variable.starts_with("OMP_NUM_THREADS=");
    all.push_back(std::move(variable));
  }
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  if (!has_threads) all.push_back(text_of("OMP_NUM_THREADS=", std::max(1U, cores / static_cast<unsigned>(count))));
  return all;
}

namespace {

std::vector<std::string>& scoped_arguments() {
  static std::vector<std::string> arguments;
  return arguments;
}

}  // namespace

CommandScope::CommandScope(std::vector<std::string> arguments) { scoped_arguments() = std::move(arguments); }
CommandScope::~CommandScope() { scoped_arguments().clear(); }

std::vector<std::string> own_arguments() {
  if (!scoped_arguments().empty()) return scoped_arguments();
  std::vector<std::string> arguments = split(read_file("/proc/self/cmdline"), '\0');
  if (!arguments.empty() && arguments.back().empty()) arguments.pop_back();
  return arguments;
}

int run_processes(const LocalRanks& local, const std::vector<std::string>& arguments) {
  catch_interrupts("");
  std::vector<Rank> ranks = start_ranks(local, arguments);
  FirstFailure failure;
  bool reported = false;
  bool passed_on = false;
  bool killed = false;
  Clock::time_point end = Clock::time_point::max();
  for (;;) {
    reap(ranks, failure, reported);
    std::vector<pollfd> waits;
    for (const Rank& rank : ranks) {
      if (!rank.ended) waits.push_back({rank.process.number(), POLLIN, 0});
    }
    if (waits.empty()) break;
    if (failure.rank >= 0 && end == Clock::time_point::max()) end = Clock::now() + kGrace;
    if (local.converses && interrupted() && !termination_requested()) {
      clear_interrupt();
      if (!ranks.front().ended) ::kill(ranks.front().id, SIGINT);
    }
    const bool pass_on = interrupted() && !std::exchange(passed_on, interrupted());
    const bool kill = Clock::now() >= end && !std::exchange(killed, Clock::now() >= end);
    for (const Rank& rank : ranks) {
      if (rank.ended) continue;
      if (pass_on) ::kill(rank.id, termination_requested() ? SIGTERM : SIGINT);
      if (kill) ::kill(rank.id, SIGKILL);
    }
    (void)poll_until(waits, Clock::now() + kLook);
  }
  if (failure.rank < 0) return 0;
  if (WIFEXITED(failure.status)) return WEXITSTATUS(failure.status);
  const int signal = WTERMSIG(failure.status);
  if (!reported) {
    log_error(text_of("hone: error: rank ", local.first + failure.rank, " of ", local.total, " was ended by signal ",
                      signal, " (", ::strsignal(signal), ")"));
  }
  return 1;
}

}  // namespace hone
