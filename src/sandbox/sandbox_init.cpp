#include "sandbox/sandbox_init.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "core/error.h"
#include "system/child.h"
#include "system/poll.h"

namespace hone {
namespace {

constexpr int kStatus = 3;  // descriptor of the status pipe, after the standard streams
constexpr const char* kHostName = "sandbox";
constexpr std::uint64_t kMostInodes = 16384;  // of the tmpfs at /tmp; no other limit counts inodes

// struct mount_attr and constants of linux/mount.h, which conflicts with the headers of some C libraries.
struct MountAttributes {
  std::uint64_t set = 0;
  std::uint64_t clear = 0;
  std::uint64_t propagation = 0;
  std::uint64_t user_space = 0;
};
constexpr std::uint64_t kReadOnly = 1;
constexpr std::uint64_t kNoSetUid = 2;
constexpr std::uint64_t kNoDevices = 4;
constexpr unsigned kClone = 1;           // OPEN_TREE_CLONE
constexpr unsigned kEmptyPath = 0x1000;  // AT_EMPTY_PATH
constexpr unsigned kRecursive = 0x8000;  // AT_RECURSIVE
constexpr unsigned kMoveFrom = 4;        // MOVE_MOUNT_F_EMPTY_PATH

void ensure(bool good, std::string_view what) {
  if (!good) throw Error(what, std::strerror(errno));
}

bool put(const char* path, std::string_view text) {
  const Descriptor file(open(path, O_WRONLY | O_CLOEXEC));
  return file.open() && write(file.number(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// --- File tree: built below the working directory, which becomes the new root

void set_attributes(int folder, const char* path, unsigned flags, std::uint64_t attributes, std::string_view what) {
  const MountAttributes asked{.set = attributes};
  ensure(syscall(SYS_mount_setattr, folder, path, flags, &asked, sizeof asked) == 0, what);
}

struct OpenMount {
  Descriptor from;
  std::string to;
};

// Clones a mount without attaching it. All mounts are opened first, because later mounts hide paths of this machine.
OpenMount open_mount(const LaunchMount& mount) {
  OpenMount opened{Descriptor(static_cast<int>(
                       syscall(SYS_open_tree, AT_FDCWD, mount.from.c_str(), kClone | O_CLOEXEC | kRecursive))),
                   mount.to};
  ensure(opened.from.open(), mount.from);
  std::uint64_t attributes = kNoSetUid;
  if (mount.kind != MountKind::kDevice) attributes |= kNoDevices;
  if (mount.kind != MountKind::kPipe) attributes |= kReadOnly;
  set_attributes(opened.from.number(), "", kEmptyPath | kRecursive, attributes, mount.from);
  return opened;
}

// Returns the path relative to the new root.
const char* place_of(const std::string& path) { return path.c_str() + (path.starts_with('/') ? 1 : 0); }

void make_parents(const std::string& path) {
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    ensure(mkdir(place_of(path.substr(0, at)), 0755) == 0 || errno == EEXIST, path);
  }
}

void attach(const OpenMount& mount) {
  struct stat status{};
  ensure(fstat(mount.from.number(), &status) == 0, mount.to);
  make_parents(mount.to);
  const char* place = place_of(mount.to);
  if (S_ISDIR(status.st_mode)) {
    ensure(mkdir(place, 0755) == 0 || errno == EEXIST, mount.to);
  } else {
    ensure(Descriptor(open(place, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0444)).open(), mount.to);
  }
  ensure(syscall(SYS_move_mount, mount.from.number(), "", AT_FDCWD, place, kMoveFrom) == 0, mount.to);
}

// Returns true if the target is in /tmp, for example because a virtual environment is there on this machine. Such
// mounts are attached after the tmpfs at /tmp.
bool is_in_tmp(const OpenMount& mount) { return mount.to.starts_with("/tmp/"); }

void write_program_file(const SandboxFile& file) {
  const std::string path = "/tmp/" + file.name;
  make_parents(path);
  const Descriptor to(open(place_of(path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, file.executable ? 0755 : 0644));
  ensure(to.open(), path);
  for (std::string_view left = file.content; !left.empty();) {
    const ssize_t count = write(to.number(), left.data(), left.size());
    ensure(count > 0, path);
    left.remove_prefix(static_cast<std::size_t>(count));
  }
}

void build_tree(const LaunchPlan& plan) {
  ensure(mount(nullptr, "/", nullptr, MS_SLAVE | MS_REC, nullptr) == 0, "making the mounts private");
  // Open the sources of all mounts while the old root is visible.
  std::vector<OpenMount> mounts;
  mounts.reserve(plan.world.mounts.size());
  for (const LaunchMount& wanted : plan.world.mounts) mounts.push_back(open_mount(wanted));
  std::vector<OpenMount> pipes;
  pipes.reserve(plan.pipes.size());
  for (const SandboxPipe& pipe : plan.pipes) {
    pipes.push_back(open_mount({MountKind::kPipe, pipe.path, "/tmp/" + pipe.name}));
  }
  // The new root is a small tmpfs, mounted over /tmp of the old root.
  constexpr unsigned long kPlain = MS_NOSUID | MS_NODEV;
  ensure(mount("tmpfs", "/tmp", "tmpfs", kPlain, "mode=0755,size=256k") == 0 && chdir("/tmp") == 0,
         "mounting a new root");
  for (const OpenMount& wanted : mounts) {
    if (!is_in_tmp(wanted)) attach(wanted);
  }
  for (const LaunchLink& link : plan.world.links) {
    make_parents(link.path);
    ensure(symlink(link.target.c_str(), place_of(link.path)) == 0, link.path);
  }
  // /proc is read-only, because otherwise a program could write to the memory of others through /proc/PID/mem.
  ensure(mkdir("proc", 0755) == 0 && mount("proc", "proc", "proc", kPlain | MS_NOEXEC | MS_RDONLY, nullptr) == 0,
         "mounting /proc");
  const std::string room = text_of("mode=0755,size=", plan.disk_bytes, ",nr_inodes=", kMostInodes);
  ensure(mkdir("tmp", 0755) == 0 && mount("tmpfs", "tmp", "tmpfs", kPlain, room.c_str()) == 0, "mounting /tmp");
  for (const SandboxFile& file : plan.files) write_program_file(file);
  for (const OpenMount& wanted : mounts) {
    if (is_in_tmp(wanted)) attach(wanted);
  }
  for (const OpenMount& pipe : pipes) attach(pipe);
  // pivot_root(".", ".") stacks the old root on the new one (pivot_root(2)); umount2 detaches it.
  ensure(syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0 && chdir("/tmp") == 0, "pivot_root");
  set_attributes(AT_FDCWD, "/", 0, kReadOnly, "making the root read-only");
}

// --- Capabilities, seccomp and descriptors

void give_up_rights(const std::string& filter) {
  for (unsigned long right = 0; prctl(PR_CAPBSET_READ, right, 0, 0, 0) >= 0; ++right) {
    ensure(prctl(PR_CAPBSET_DROP, right, 0, 0, 0) == 0, "dropping capabilities");
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  ensure(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0 && syscall(SYS_capset, &header, none) == 0,
         "dropping capabilities");
  // Not dumpable: programs cannot read or change this process through /proc or ptrace. The seccomp filter needs
  // no_new_privs.
  ensure(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "dropping privileges");
  std::vector<sock_filter> rules(filter.size() / sizeof(sock_filter));
  std::memcpy(rules.data(), filter.data(), rules.size() * sizeof(sock_filter));
  const sock_fprog program{static_cast<unsigned short>(rules.size()), rules.data()};
  ensure(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0, "installing the seccomp filter");
}

// Makes the kernel kill this process when the server dies. The server may have died before the call to prctl.
void die_with(int server) {
  ensure(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "PR_SET_PDEATHSIG");
  if (wait_readable(server, std::chrono::milliseconds(0))) _exit(1);
}

// Places the standard streams and the status pipe at descriptors 0 to 3 and closes all others. The program inherits the
// standard streams only.
void place_streams(const LaunchStreams& streams) {
  ensure(dup2(streams.input, 0) == 0 && dup2(streams.output, 1) == 1 && dup2(streams.error, 2) == 2 &&
             dup3(streams.status, kStatus, O_CLOEXEC) == kStatus && close_range(kStatus + 1, ~0U, 0) == 0,
         "passing descriptors");
}

// --- The program

void tell(int status, std::string_view line) {
  if (write(status, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(1);
}

// Sets the resource limits and executes the program. The limits come last because they are too low for the setup.
[[noreturn]] void run_program(const LaunchPlan& plan, char* const* arguments, char* const* environment) {
  for (const ResourceLimit& limit : plan.limits) {
    const rlimit both{limit.most, limit.most};
    if (setrlimit(static_cast<__rlimit_resource_t>(limit.resource), &both) != 0) _exit(125);
  }
  execve(arguments[0], arguments, environment);
  const char* reason = std::strerror(errno);
  for (const char* part : {static_cast<const char*>(arguments[0]), ": ", reason, "\n"}) {
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
  _exit(127);
}

[[noreturn]] void run_and_wait(const LaunchPlan& plan) {
  const std::vector<char*> arguments = pointers_to(plan.arguments);
  const std::vector<char*> environment = pointers_to(plan.environment);
  tell(kStatus, "began\n");
  const pid_t program = fork();
  if (program == 0) run_program(plan, arguments.data(), environment.data());
  ensure(program > 0, "forking the program");
  (void)close_range(0, kStatus - 1, 0);
  for (;;) {
    int status = 0;
    const pid_t ended = wait(&status);  // as init of the PID namespace, also reaps orphans of the program
    if (ended < 0 && errno != EINTR) _exit(1);
    if (ended != program) continue;
    tell(kStatus, text_of("ended ", status, "\n"));
    _exit(0);
  }
}

std::string content_of(int file) {
  std::string bytes(static_cast<std::size_t>(std::max<off_t>(lseek(file, 0, SEEK_END), 0)), '\0');
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = pread(file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    ensure(count > 0, "reading the launch plan");
    done += static_cast<std::size_t>(count);
  }
  return bytes;
}

}  // namespace

bool map_user(uid_t user, gid_t group, const LaunchServer& server) {
  return put("/proc/self/setgroups", "deny") && put("/proc/self/gid_map", text_of(group, " ", server.group, " 1")) &&
         put("/proc/self/uid_map", text_of(user, " ", server.user, " 1"));
}

void run_inside(int plan, const LaunchStreams& streams, const LaunchServer& server) {
  int status = streams.status;
  try {
    die_with(server.process);
    default_signals();
    ensure(setsid() >= 0, "creating a session");
    offer_to_oom_killer();
    give_up_precedence();
    ensure(streams.control_group < 0 || write(streams.control_group, "0", 1) == 1, "joining a control group");
    ensure(map_user(kNobody, kNobody, server), "mapping user and group ids");
    const std::string bytes = content_of(plan);
    const LaunchPlan wanted = decode_plan(bytes);
    build_tree(wanted);
    ensure(sethostname(kHostName, std::strlen(kHostName)) == 0, "setting the host name");
    place_streams(streams);
    status = kStatus;
    give_up_rights(wanted.filter);
    run_and_wait(wanted);
  } catch (const std::exception& error) {
    tell(status, text_of("failed ", error.what(), "\n"));
    _exit(1);
  }
}

}  // namespace hone
