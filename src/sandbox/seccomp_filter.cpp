#include "sandbox/seccomp_filter.h"

#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>

#include "core/descriptor.h"
#include "core/error.h"

namespace hone {
namespace {

// System calls by name, because the headers and libseccomp of different years know different ones. Unknown names are
// skipped.
constexpr std::array kForbidden = {
    // namespaces and mounts
    "mount", "umount2", "pivot_root", "chroot", "setns", "unshare", "open_tree", "open_tree_attr", "move_mount",
    "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "quotactl", "quotactl_fd", "swapon", "swapoff",
    "open_by_handle_at", "name_to_handle_at",
    // other processes
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp", "migrate_pages",
    "move_pages",
    // the kernel itself, and interfaces with many past vulnerabilities
    "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register", "init_module",
    "finit_module", "delete_module", "kexec_load", "kexec_file_load", "keyctl", "add_key", "request_key",
    "fanotify_init", "lookup_dcookie", "syslog", "acct", "reboot", "vhangup", "iopl", "ioperm", "personality", "uselib",
    "vmsplice", "modify_ldt", "seccomp",
    // the machine's clock and name
    "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname",
    // memory that no resource limit of a process counts
    "memfd_create", "memfd_secret", "shmget", "shmat", "msgget", "semget", "mq_open", "remap_file_pages", "mbind",
    "set_mempolicy", "set_mempolicy_home_node", "mlock", "mlock2", "mlockall", "setxattr", "lsetxattr", "fsetxattr",
    "setxattrat",
    // Descriptors in flight are limited per user: a program that sends many would keep hone from passing descriptors to
    // its server. A filter cannot see whether a message carries descriptors.
    "sendmsg", "sendmmsg",
    // resources limited per machine or per user, such as fs.aio-max-nr for io_setup
    "io_setup", "inotify_init", "inotify_init1",
    // state of files that programs in other sandboxes also see: locks and pages in the page cache
    "flock", "cachestat",
    // the whole machine's disks
    "sync", "syncfs"};

#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE 62
#endif

constexpr unsigned kNewSpaces =
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

void check(int result, std::string_view what) {
  if (result < 0) throw Error("the seccomp filter of the sandbox", text_of(what, ": ", std::strerror(-result)));
}

void forbid(scmp_filter_ctx filter, const char* name, int error = EPERM) {
  const int number = seccomp_syscall_resolve_name(name);
  if (number < 0) return;
  check(seccomp_rule_add_exact(filter, SCMP_ACT_ERRNO(error), number, 0), name);
}

template <class... Comparisons>
void forbid_where(scmp_filter_ctx filter, const char* name, Comparisons... comparisons) {
  const int number = seccomp_syscall_resolve_name(name);
  check(seccomp_rule_add_exact(filter, SCMP_ACT_ERRNO(EPERM), number, sizeof...(comparisons), comparisons...), name);
}

}  // namespace

std::string seccomp_filter() {
  const std::unique_ptr<std::remove_pointer_t<scmp_filter_ctx>, decltype(&seccomp_release)> owner(
      seccomp_init(SCMP_ACT_ALLOW), &seccomp_release);
  scmp_filter_ctx filter = owner.get();
  if (filter == nullptr) throw Error("the seccomp filter of the sandbox", "libseccomp cannot create one");
  for (const char* name : kForbidden) forbid(filter, name);
  // The flags of clone3 are in memory, which a filter cannot read. ENOSYS makes the C library fall back to clone.
  forbid(filter, "clone3", ENOSYS);
  for (unsigned flag = 1; flag != 0; flag <<= 1) {
    if ((kNewSpaces & flag) != 0) forbid_where(filter, "clone", SCMP_A0_32(SCMP_CMP_MASKED_EQ, flag, flag));
  }
  for (const char* name : {"socket", "socketpair"}) {
    forbid_where(filter, name, SCMP_A0_32(SCMP_CMP_NE, static_cast<scmp_datum_t>(AF_UNIX)));
  }
  // A program may use prlimit64 on itself only: the sandbox's first process has the same user id.
  forbid_where(filter, "prlimit64", SCMP_A0_32(SCMP_CMP_NE, 0));
  // Locks on files that programs in other sandboxes also see, and larger pipes.
  for (const int command :
       {F_GETLK, F_SETLK, F_SETLKW, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_SETLEASE, F_NOTIFY, F_SETPIPE_SZ}) {
    forbid_where(filter, "fcntl", SCMP_A1_32(SCMP_CMP_EQ, static_cast<scmp_datum_t>(command)));
  }
  // Larger socket buffers, and huge pages, of which the machine has a limited number.
  for (const int option : {SO_SNDBUF, SO_RCVBUF}) {
    forbid_where(filter, "setsockopt", SCMP_A1_32(SCMP_CMP_EQ, SOL_SOCKET),
                 SCMP_A2_32(SCMP_CMP_EQ, static_cast<scmp_datum_t>(option)));
  }
  forbid_where(filter, "mmap", SCMP_A3_32(SCMP_CMP_MASKED_EQ, MAP_HUGETLB, MAP_HUGETLB));
  // Eviction of pages from the shared page cache, and control over which processes share a core (core scheduling).
  forbid_where(filter, "fadvise64", SCMP_A3_32(SCMP_CMP_EQ, POSIX_FADV_DONTNEED));
  forbid_where(filter, "prctl", SCMP_A0_32(SCMP_CMP_EQ, PR_SCHED_CORE));
  for (const unsigned long request : {static_cast<unsigned long>(TIOCSTI), static_cast<unsigned long>(TIOCLINUX)}) {
    forbid_where(filter, "ioctl", SCMP_A1_32(SCMP_CMP_EQ, static_cast<scmp_datum_t>(request)));
  }
  const Descriptor file(memfd_create("filter", MFD_CLOEXEC));
  if (!file.open()) throw Error("the seccomp filter of the sandbox", std::strerror(errno));
  check(seccomp_export_bpf(filter, file.number()), "export");
  std::string program(static_cast<std::size_t>(lseek(file.number(), 0, SEEK_END)), '\0');
  if (pread(file.number(), program.data(), program.size(), 0) != static_cast<ssize_t>(program.size())) {
    throw Error("the seccomp filter of the sandbox", "the exported program cannot be read back");
  }
  return program;
}

}  // namespace hone
