// Tests the sandbox with hostile programs: each fails to reach its goal and leaves no process and no file behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/strings.h"
#include "sandbox/runner.h"
#include "support/paths.h"
#include "support/sandbox.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

struct Machine {
  explicit Machine(SandboxMode mode) : sandbox(mode), python(find_python(sandbox)) {}
  Sandbox sandbox;
  SandboxProgram python;
};

const Machine& machine(SandboxMode mode) {
  if (mode == SandboxMode::kNamespaces) {
    static const Machine namespaces(SandboxMode::kNamespaces);
    return namespaces;
  }
  static const Machine bubblewrap(SandboxMode::kBubblewrap);
  return bubblewrap;
}

// Runs each test with every kind of sandbox.
class SandboxOf : public testing::TestWithParam<SandboxMode> {
 protected:
  void SetUp() override { SKIP_WITHOUT_SANDBOX(); }
  [[nodiscard]] static const Sandbox& sandbox() { return machine(GetParam()).sandbox; }
};

INSTANTIATE_TEST_SUITE_P(Modes, SandboxOf, testing::Values(SandboxMode::kNamespaces, SandboxMode::kBubblewrap),
                         [](const auto& mode) {
                           return mode.param == SandboxMode::kNamespaces ? "namespaces" : "bubblewrap";
                         });

SandboxProgram shell(const std::string& script) { return {.arguments = {"/bin/sh", "-c", script}}; }

SandboxProgram python(SandboxMode mode, const std::string& code) {
  SandboxProgram program = machine(mode).python;
  program.arguments.insert(program.arguments.end(), {"-c", code});
  return program;
}

std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Counts the processes of the machine whose command line contains `mark`.
int processes_with(const std::string& mark) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos || name == std::to_string(getpid())) continue;
    try {
      count += content(entry.path() / "cmdline").find(mark) != std::string::npos ? 1 : 0;
    } catch (const std::ios_base::failure&) {  // the process has just ended
    }
  }
  return count;
}

// --- Attacks

enum class End {
  kBlocked,
  kTimedOut,
  kStopped,  // blocked or timed out: threads that get no memory may leave the interpreter waiting
  kOutput,
  kDied,
  kEnded  // died or timed out: a slow machine does not get far enough in time
};

struct Attack {
  std::string name;
  End end;
  std::string body;  // body of a Python function that returns if the attack succeeded and raises if it was refused
};

// Returns a program that prints "ok" if the attack succeeds. `mark` is in its command line, so that the test finds its
// processes.
std::string program_of(const Attack& attack, const std::string& mark) {
  std::string code =
      "# " + mark +
      "\nimport os, sys, time, ctypes, socket, signal, resource, threading, shutil, fcntl\n"
      "libc = ctypes.CDLL(None, use_errno=True)\n"
      "def call(name, *arguments):\n"
      "  if getattr(libc, name)(*arguments) == -1: raise OSError(ctypes.get_errno(), name)\n"
      "def system(number, *arguments):\n"
      "  libc.syscall.restype = ctypes.c_long\n"
      "  if libc.syscall(ctypes.c_long(number), *arguments) == -1: raise OSError(ctypes.get_errno(), str(number))\n"
      "def put(path, text='x'):\n"
      "  with open(path, 'w') as f: f.write(text)\n"
      "def attack():\n";
  for (const std::string& line : split(attack.body, '\n')) code += "  " + line + "\n";
  return code +
         "try: attack()\n"
         "except (OSError, MemoryError, RuntimeError, ValueError, KeyError) as e:\n"
         "  print('blocked', type(e).__name__, e); sys.exit(1)\n"
         "print('ok')\n";
}

std::vector<Attack> attacks(const fs::path& outside, const std::string& socket_name) {
  const std::string file = "'" + (outside / "kept").string() + "'";
  const std::string own = std::to_string(getpid());
  return {
      // time, processes, memory, disk, output
      {"fork_bomb", End::kTimedOut, "while True:\n  try: os.fork()\n  except OSError: pass"},
      {"fork_count", End::kBlocked, "for i in range(200):\n  if os.fork() == 0: time.sleep(60)"},
      {"thread_bomb", End::kStopped,
       "for i in range(500): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()"},
      {"busy_loop", End::kTimedOut, "while True: pass"},
      {"sleep", End::kTimedOut, "time.sleep(1000)"},
      {"deaf_to_signals", End::kTimedOut,
       "for s in range(1, 32):\n  try: signal.signal(s, signal.SIG_IGN)\n  except OSError: pass\nwhile True: "
       "time.sleep(1)"},
      {"closed_streams", End::kTimedOut, "for i in range(3): os.close(i)\ntime.sleep(1000)"},
      {"endless_print", End::kOutput, "while True: print('ok' * 1000)"},
      {"endless_errors", End::kOutput, "while True: print('x' * 1000, file=sys.stderr)"},
      {"ten_gigabytes", End::kBlocked, "x = bytearray(10 << 30)"},
      {"ten_gigabytes_mapped", End::kBlocked, "import mmap\nm = mmap.mmap(-1, 10 << 30)"},
      {"growing_list", End::kBlocked, "x = []\nwhile True: x.append(bytearray(1 << 24))"},
      {"deep_recursion", End::kEnded, "sys.setrecursionlimit(10**9)\nf = lambda f: f(f) + 1\nf(f)"},
      {"large_file", End::kBlocked,
       "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nwith open('f', 'wb') as f:\n  for i in range(100): "
       "f.write(bytes(1 << 20))"},
      {"many_files", End::kBlocked, "for i in range(100):\n  with open(f'f{i}', 'wb') as f: f.write(bytes(8 << 20))"},
      {"descriptors", End::kBlocked, "x = [open('/dev/null') for i in range(1000)]"},
      {"shared_memory", End::kBlocked, "call('shmget', 0, ctypes.c_size_t(1 << 30), 0o1600)"},
      {"memory_file", End::kBlocked, "os.memfd_create('x')"},
      {"raised_limits", End::kBlocked, "resource.setrlimit(resource.RLIMIT_NPROC, (10000, 10000))"},
      {"raised_memory", End::kBlocked, "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))"},
      {"limits_of_parent", End::kBlocked, "resource.prlimit(" + own + ", resource.RLIMIT_NOFILE, (5, 5))"},
      // processes that outlive the program
      {"sleeping_child", End::kDied,
       "if os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: time.sleep(1000)\n  os._exit(0)\nos._exit(3)"},
      {"child_without_streams", End::kDied,
       "if os.fork() == 0:\n  os.setsid()\n  for i in range(3): os.close(i)\n  time.sleep(1000)\nos._exit(3)"},
      // other processes
      {"kill_parent", End::kDied, "os.kill(os.getppid(), 9)\ntime.sleep(0.2)\nsys.exit(1)"},
      {"kill_all", End::kBlocked, "os.kill(-1, 9)"},
      {"kill_hone", End::kBlocked, "os.kill(" + own + ", 9)"},
      {"read_hone", End::kBlocked, "open('/proc/" + own + "/environ').read()"},
      {"memory_of_init", End::kBlocked,
       "at = next(l for l in open('/proc/1/maps') if 'rw-p' in l).split('-')[0]\nf = os.open('/proc/1/mem', "
       "os.O_RDWR)\n"
       "os.lseek(f, int(at, 16), 0)\nos.write(f, b'x')"},
      {"trace_init", End::kBlocked, "call('ptrace', 16, 1, 0, 0)"},
      // files
      {"walk", End::kBlocked,
       "for folder, _, files in os.walk('/'):\n  if folder.startswith('/proc') : continue\n"
       "  if 'kept' in files or 'shadow' in files: return\nraise OSError('nothing found')"},
      {"read_file", End::kBlocked, "open(" + file + ").read()"},
      {"passwords", End::kBlocked, "open('/etc/shadow').read()"},
      {"delete_everything", End::kBlocked, "shutil.rmtree('/usr')"},
      {"write_usr", End::kBlocked, "put('/usr/bin/x')"},
      {"write_root", End::kBlocked, "put('/x')"},
      {"write_dev", End::kBlocked, "put('/dev/x')"},
      {"symlink_out", End::kBlocked, "os.symlink(" + file + ", 's')\nput('s')"},
      {"symlink_through_proc", End::kBlocked, "os.symlink('/proc/1/root/usr/bin', 's')\nput('s/x')"},
      {"symlink_up", End::kBlocked, "os.symlink('../../../../..' + " + file + ", 's')\nput('s')"},
      {"hard_link", End::kBlocked, "os.link('/usr/bin/env', 'e')"},
      {"change_modes", End::kBlocked, "os.chmod('/usr/bin/env', 0o4755)"},
      {"rewritten_input", End::kBlocked, "put('/proc/self/fd/0')"},
      {"proc_sys", End::kBlocked, "put('/proc/sys/kernel/hostname', 'mine')"},
      {"proc_core_pattern", End::kBlocked, "put('/proc/sys/kernel/core_pattern', '|/tmp/x')"},
      {"sysrq", End::kBlocked, "put('/proc/sysrq-trigger', 'h')"},
      {"sys", End::kBlocked, "put('/sys/kernel/mm/ksm/run', '0')"},
      {"kernel_memory", End::kBlocked, "open('/dev/mem', 'rb')"},
      {"device_node", End::kBlocked, "os.mknod('d', 0o60666, os.makedev(8, 0))"},
      // the kernel
      {"become_root", End::kBlocked, "os.setuid(0)"},
      {"user_space", End::kBlocked, "call('unshare', 0x10000000)"},
      {"clone_user_space", End::kBlocked, "system(56, ctypes.c_ulong(0x10000000 | 17), 0, 0, 0, 0)"},
      {"clone3", End::kBlocked, "system(435, ctypes.create_string_buffer(88), 88)"},
      {"mount", End::kBlocked, "call('mount', b'none', b'/tmp', b'tmpfs', 0, None)"},
      {"unmount", End::kBlocked, "call('umount2', b'/usr', 2)"},
      {"chroot", End::kBlocked, "os.chroot('/tmp')"},
      {"host_name", End::kBlocked, "socket.sethostname('mine')"},
      {"bpf", End::kBlocked, "system(321, 0, 0, 0)"},
      {"io_uring", End::kBlocked, "system(425, 8, ctypes.create_string_buffer(256))"},
      {"keyring", End::kBlocked, "system(250, 0, -3, 1)"},
      {"terminal_input", End::kBlocked, "fcntl.ioctl(0, 0x5412, b'x')"},
      // the network
      {"internet_socket", End::kBlocked, "socket.socket(socket.AF_INET)"},
      {"netlink", End::kBlocked, "socket.socket(16, socket.SOCK_RAW, 0)"},
      {"abstract_socket", End::kBlocked, "socket.socket(socket.AF_UNIX).connect('\\0" + socket_name + "')"},
      // information about the machine
      {"environment", End::kBlocked, "os.environ['HONE_TEST_SECRET']"},
  };
}

// Attacks that bubblewrap does not prevent.
std::vector<Attack> attacks_on_namespaces() {
  return {
      {"endless_files", End::kBlocked, "for i in range(10**6): open(f'f{i}', 'w').close()"},
      {"streams_of_init", End::kBlocked, "os.listdir('/proc/1/fd')"},
      {"what_init_says", End::kBlocked, "os.write(os.open('/proc/1/fd/3', os.O_WRONLY), b'ended 0')"},
      {"what_init_said", End::kBlocked, "os.write(3, b'ended 0')"},
      {"environment_of_init", End::kBlocked, "open('/proc/1/environ').read()"},
      {"root_of_init", End::kBlocked, "os.listdir('/proc/1/root')"},
      {"writable_root", End::kBlocked, "call('mount', None, b'/', None, 32, None)"},
      {"rights", End::kBlocked,
       "lines = open('/proc/self/status').read().split('\\n')\n"
       "rights = [l.split()[1] for l in lines if l.startswith('Cap')]\n"
       "if all(int(r, 16) == 0 for r in rights): raise OSError('no rights')"},
      {"mounts", End::kBlocked,
       "known = ('/usr', '/bin', '/sbin', '/lib', '/etc/', '/dev/', '/proc', '/tmp')\n"
       "mounts = [l.split() for l in open('/proc/self/mounts')]\n"
       "for _, path, _, options, *_ in mounts:\n"
       "  of_python = sys.prefix.startswith(path) or path.startswith(sys.prefix)\n"
       "  if path != '/' and not path.startswith(known) and not of_python: return\n"
       "  if 'ro' not in options.split(',') and path != '/tmp' and not path.startswith('/dev/'): return\n"
       "raise OSError('nothing that is not read-only')"},
  };
}

std::string end_of(const SandboxResult& result) {
  return text_of("exit ", result.exit_status, result.timed_out ? ", timed out" : "",
                 result.output_exceeded ? ", printed too much" : "", ", said '", result.output.substr(0, 200), "' '",
                 result.error.substr(0, 600), "' ", result.failure);
}

bool ended_as(End end, const SandboxResult& result) {
  switch (end) {
    case End::kBlocked:
      return result.exit_status == 1 && !result.timed_out && result.output.starts_with("blocked");
    case End::kTimedOut:
      return result.timed_out;
    case End::kStopped:
      return ended_as(End::kBlocked, result) || ended_as(End::kTimedOut, result);
    case End::kOutput:
      return result.output_exceeded;
    case End::kDied:
      return result.exit_status != 0 && !result.timed_out && result.output.empty();
    case End::kEnded:
      return ended_as(End::kDied, result) || ended_as(End::kTimedOut, result);
  }
  return false;
}

// Listening socket with an abstract address, which only the network namespace hides.
class AbstractSocket {
 public:
  explicit AbstractSocket(const std::string& name) : number_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    EXPECT_EQ(::bind(number_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(number_, 8), 0);
  }
  AbstractSocket(const AbstractSocket&) = delete;
  AbstractSocket& operator=(const AbstractSocket&) = delete;
  ~AbstractSocket() { ::close(number_); }

 private:
  int number_;
};

// Targets of the attacks.
class Prey {
 public:
  Prey() : name_("hone-sandbox-test-" + std::to_string(getpid())), socket_(name_) {
    std::ofstream(folder_.path() / "kept") << "kept";
    fs::permissions(folder_.path(), fs::perms::all);
    fs::permissions(folder_.path() / "kept", fs::perms::all);
    ::setenv("HONE_TEST_SECRET", "1", 1);
  }
  Prey(const Prey&) = delete;
  Prey& operator=(const Prey&) = delete;
  ~Prey() { ::unsetenv("HONE_TEST_SECRET"); }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const fs::path& folder() const { return folder_.path(); }
  [[nodiscard]] std::string kept() const { return content(folder_.path() / "kept"); }

 private:
  std::string name_;
  AbstractSocket socket_;
  test::TemporaryDirectory folder_;
};

std::vector<std::pair<rlim_t, rlim_t>> own_limits() {
  std::vector<std::pair<rlim_t, rlim_t>> all;
  for (int resource = 0; resource < RLIM_NLIMITS; ++resource) {
    rlimit limit{};
    getrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
    all.emplace_back(limit.rlim_cur, limit.rlim_max);
  }
  return all;
}

// A program is not ahead of its siblings because hone was started with precedence.
TEST_P(SandboxOf, programs_run_at_the_ordinary_priority) {
  const sched_param real_time{.sched_priority = 1};
  const sched_param ordinary{.sched_priority = 0};
  if (setpriority(PRIO_PROCESS, 0, -5) != 0) GTEST_SKIP() << "this user cannot raise its priority";
  const bool is_real_time = sched_setscheduler(0, SCHED_RR, &real_time) == 0;
  constexpr int kWhoProcess = 1;                 // numbers of ioprio_set(2); no header of C++ has them
  constexpr long kFirstAtTheDisk = 1 << 13 | 1;  // class 1, real time, and level 1
  const bool is_first_at_the_disk = syscall(SYS_ioprio_set, kWhoProcess, 0, kFirstAtTheDisk) == 0;
  std::string seen;
  std::string seen_of_the_disk;
  {
    const Sandbox fresh(GetParam());
    seen = fresh.run(shell("cut -d ' ' -f 19,41 /proc/self/stat"), {}, {}).output;  // nice value and policy
    seen_of_the_disk = fresh.run(shell("ionice"), {}, {}).output;
  }
  if (is_first_at_the_disk) syscall(SYS_ioprio_set, kWhoProcess, 0, 0);
  if (is_real_time) sched_setscheduler(0, SCHED_OTHER, &ordinary);
  setpriority(PRIO_PROCESS, 0, 0);
  EXPECT_EQ(seen, "0 0\n");
  EXPECT_THAT(seen_of_the_disk, testing::AnyOf("none: prio 0\n", "none: prio 4\n", "best-effort: prio 4\n"));
}

TEST_P(SandboxOf, attacks_get_nothing_and_leave_nothing) {
  const Prey prey;
  (void)sandbox();  // The first sandbox of a process raises its soft limit on open files.
  const auto limits_before = own_limits();
  const std::string host_before = content("/proc/sys/kernel/hostname");
  const std::string core_before = content("/proc/sys/kernel/core_pattern");
  std::vector<Attack> all = attacks(prey.folder(), prey.name());
  if (GetParam() == SandboxMode::kNamespaces) std::ranges::copy(attacks_on_namespaces(), std::back_inserter(all));
  ASSERT_GE(all.size(), 25u);
  std::vector<SandboxProgram> programs;
  for (const Attack& attack : all) programs.push_back(python(GetParam(), program_of(attack, prey.name())));
  std::vector<SandboxTask> tasks;
  for (std::size_t i = 0; i < all.size(); ++i) {
    SandboxTask task{&programs[i], "the input\n", {}};
    // Programs that end on their own get enough time for a busy machine.
    task.limits.wall_time = all[i].end == End::kTimedOut  ? milliseconds(700)
                            : all[i].end == End::kStopped ? milliseconds(5000)
                                                          : milliseconds(60'000);
    task.limits.cpu_seconds = 30;
    task.limits.memory_bytes = 256ULL << 20;
    tasks.push_back(task);
  }
  const std::vector<SandboxResult> results = sandbox().run(tasks, 3);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_TRUE(ended_as(all[i].end, results[i])) << all[i].name << ": " << end_of(results[i]);
    EXPECT_FALSE(results[i].succeeded()) << all[i].name;
  }
  EXPECT_EQ(processes_with(prey.name()), 0);
  EXPECT_EQ(prey.kept(), "kept");
  EXPECT_EQ(std::distance(fs::directory_iterator(prey.folder()), {}), 1);
  EXPECT_EQ(own_limits(), limits_before);
  EXPECT_EQ(content("/proc/sys/kernel/hostname"), host_before);
  EXPECT_EQ(content("/proc/sys/kernel/core_pattern"), core_before);
}

// Two concurrent programs listen on abstract sockets, and each tries to connect to the other.
TEST_P(SandboxOf, programs_do_not_meet) {
  const auto program = [](const std::string& own, const std::string& other) {
    return python(GetParam(),
                  "import socket, time\n"
                  "mine = socket.socket(socket.AF_UNIX)\n"
                  "mine.bind('\\0" +
                      own +
                      "')\n"
                      "mine.listen()\n"
                      "for _ in range(20):\n"
                      "    try:\n"
                      "        socket.socket(socket.AF_UNIX).connect('\\0" +
                      other +
                      "')\n"
                      "        print('met')\n"
                      "    except OSError: time.sleep(0.05)\n");
  };
  const SandboxProgram one = program("one", "two");
  const SandboxProgram two = program("two", "one");
  SandboxLimits limits;
  limits.wall_time = milliseconds(60'000);
  const std::vector<SandboxTask> tasks{{&one, {}, limits}, {&two, {}, limits}, {&one, {}, limits}, {&two, {}, limits}};
  for (const SandboxResult& result : sandbox().run(tasks, 2)) {
    EXPECT_TRUE(result.succeeded()) << result.error;
    EXPECT_EQ(result.output, "");
  }
}

// Shows that the attacks are effective: these succeed without the sandbox.
TEST_P(SandboxOf, without_it_attacks_succeed) {
  const Prey prey;
  const Sandbox none(SandboxMode::kNone);
  const std::vector<std::string> harmless = {"read_file", "abstract_socket", "internet_socket", "memory_file",
                                             "symlink_out"};
  int tried = 0;
  for (const Attack& attack : attacks(prey.folder(), prey.name())) {
    if (std::ranges::find(harmless, attack.name) == harmless.end()) continue;
    SandboxLimits limits;
    limits.wall_time = milliseconds(60'000);
    const SandboxResult result = none.run(python(GetParam(), program_of(attack, prey.name())), {}, limits);
    EXPECT_EQ(result.output, "ok\n") << attack.name << ": " << end_of(result);
    ++tried;
  }
  EXPECT_EQ(tried, 5);
  EXPECT_EQ(prey.kept(), "x");
}

// Kills the process that runs the programs; no program may survive it.
TEST_P(SandboxOf, programs_die_with_the_process_that_runs_them) {
  const std::string mark = "hone-orphan-test-" + std::to_string(getpid());
  const pid_t child = fork();
  if (child == 0) {
    // The shell assembles the mark, so only the running program has it in its command line. bwrap has the script in its
    // command line even before it is set to die with its parent.
    const SandboxProgram program =
        shell("m=orphan; setsid sh -c \"sleep 1000; : # hone-$m-test-" + std::to_string(getppid()) + "\" & sleep 1000");
    SandboxLimits limits;
    limits.wall_time = std::chrono::hours(1);
    (void)Sandbox(GetParam()).run(program, {}, limits);
    _exit(0);
  }
  bool ran = false;  // seen at least once: during exec a process has no command line
  while (!ran && waitpid(child, nullptr, WNOHANG) == 0) {
    ran = processes_with(mark) > 0;
    usleep(1000);
  }
  EXPECT_TRUE(ran);
  kill(child, SIGKILL);
  (void)waitpid(child, nullptr, 0);
  for (int tries = 0; tries < 20'000 && processes_with(mark) > 0; ++tries) usleep(1000);
  EXPECT_EQ(processes_with(mark), 0);
}

// --- Environment of honest programs

TEST_P(SandboxOf, input_output_and_status_pass) {
  const std::string large(300'000, 'y');
  const SandboxResult echoed = sandbox().run(shell("cat; echo wrong >&2; exit 7"), large, {});
  EXPECT_EQ(echoed.output, large);
  EXPECT_EQ(echoed.error, "wrong\n");
  EXPECT_EQ(echoed.exit_status, 7);
  EXPECT_FALSE(echoed.succeeded());
  EXPECT_TRUE(sandbox().run(shell("true"), {}, {}).succeeded());
  const SandboxResult killed = sandbox().run(shell("kill -SEGV $$"), {}, {});
  EXPECT_EQ(killed.signal, SIGSEGV);
  EXPECT_EQ(killed.exit_status, 128 + SIGSEGV);
}

TEST_P(SandboxOf, files_are_laid_into_the_folder) {
  for (const SandboxMode mode : {GetParam(), SandboxMode::kNone}) {
    SandboxProgram program = shell("cat a b; echo new > c; cat c; ls");
    program.files = {{"a", "first\n"}, {"b", "second\n"}};
    const SandboxResult result = Sandbox(mode).run(program, {}, {});
    EXPECT_EQ(result.output, "first\nsecond\nnew\na\nb\nc\n") << end_of(result);
  }
}

TEST_P(SandboxOf, the_output_is_cut_at_its_limit) {
  for (const SandboxMode mode : {GetParam(), SandboxMode::kNone}) {
    SandboxLimits limits;
    limits.output_bytes = 10'000;
    const SandboxResult exact = Sandbox(mode).run(shell("head -c 10000 /dev/zero"), {}, limits);
    EXPECT_TRUE(exact.succeeded()) << exact.exit_status << exact.failure;
    EXPECT_EQ(exact.output.size(), 10'000u);
    const SandboxResult more = Sandbox(mode).run(shell("head -c 10001 /dev/zero"), {}, limits);
    EXPECT_TRUE(more.output_exceeded);
    EXPECT_EQ(more.output.size(), 10'000u);
  }
}

TEST_P(SandboxOf, many_run_at_once_and_answer_in_order) {
  const SandboxProgram program = shell("read x; echo $((x * 2))");
  std::vector<std::string> inputs;
  for (int i = 0; i < 60; ++i) inputs.push_back(std::to_string(i) + "\n");
  std::vector<SandboxTask> tasks;
  for (const std::string& input : inputs) tasks.push_back({&program, input, {}});
  const std::vector<SandboxResult> results = sandbox().run(tasks, 8);
  for (int i = 0; i < 60; ++i) EXPECT_EQ(results[static_cast<std::size_t>(i)].output, std::to_string(2 * i) + "\n");
}

TEST(Sandbox, none_keeps_the_limits_and_its_folder_goes) {
  const Sandbox none(SandboxMode::kNone);
  SandboxLimits limits;
  limits.wall_time = milliseconds(300);
  const SandboxResult slow = none.run(shell("pwd; sleep 60 & sleep 60"), {}, limits);
  EXPECT_TRUE(slow.timed_out);
  EXPECT_FALSE(slow.succeeded());
  const std::string folder(trim(slow.output));
  EXPECT_THAT(folder, testing::HasSubstr("hone-program-"));
  EXPECT_FALSE(fs::exists(folder));
#ifndef __SANITIZE_THREAD__  // ThreadSanitizer turns vfork into fork, so that the error of exec is not reported
  EXPECT_THROW((void)none.run({.arguments = {"/no/such/program"}}, {}, {}), Error);
#endif
}

TEST(Sandbox, without_bubblewrap_the_error_says_what_to_do) {
  if (fs::exists("/usr/bin/bwrap")) {
    GTEST_SKIP() << "bubblewrap is in /usr/bin, which is always searched";
  }
  try {
    const Sandbox sandbox(SandboxMode::kBubblewrap);
    FAIL() << "created a sandbox without bubblewrap";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("bubblewrap"));
    EXPECT_THAT(error.what(), testing::HasSubstr("sandbox: none"));
  }
}

}  // namespace
}  // namespace hone
