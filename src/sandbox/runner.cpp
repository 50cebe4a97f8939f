#include "sandbox/runner.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/strings.h"
#include "sandbox/launcher.h"
#include "sandbox/process_supervisor.h"
#include "sandbox/seccomp_filter.h"
#include "sandbox/world.h"
#include "system/child.h"
#include "system/open_files.h"
#include "system/streams.h"

namespace hone {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kWhere = "the sandbox for programs";
constexpr std::string_view kElse = "or set `sandbox: none`, which runs programs without isolation";
constexpr std::int64_t kOpenFiles = 64;
constexpr std::int64_t kPendingSignals = 64;

// Script of the first process in a bubblewrap sandbox. It sets the limit on processes, which the kernel counts per user
// and user namespace (dash: ulimit -p, bash: ulimit -u), reports that the program begins, runs it and exits with its
// status. The kernel then kills the other processes of the PID namespace.
constexpr std::string_view kInit =
    R"({ ulimit -p "$1" || ulimit -u "$1" || exit 125; } 2>/dev/null; shift; echo began >&5; exec 5>&-; "$@"; exit $?)";

std::vector<ResourceLimit> resource_limits(const SandboxProgram& program, const SandboxLimits& limits) {
  std::uint64_t largest = limits.file_bytes;
  for (const SandboxFile& file : program.files) largest = std::max<std::uint64_t>(largest, file.content.size());
  std::vector<ResourceLimit> all = {{RLIMIT_CPU, static_cast<rlim_t>(limits.cpu_seconds)},
                                    {RLIMIT_AS, limits.memory_bytes},
                                    {RLIMIT_FSIZE, largest},
                                    {RLIMIT_NOFILE, kOpenFiles},
                                    {RLIMIT_CORE, core_limit()},
                                    {RLIMIT_MEMLOCK, 0},
                                    {RLIMIT_MSGQUEUE, 0},
                                    {RLIMIT_NICE, 0},
                                    {RLIMIT_RTPRIO, 0},
                                    {RLIMIT_SIGPENDING, kPendingSignals}};
  // The hard limit of this process, usually unlimited, which it cannot raise. With a finite stack limit the C library
  // would reserve as much address space for each thread.
  rlimit stack{};
  if (limits.deep_stack && getrlimit(RLIMIT_STACK, &stack) == 0) all.push_back({RLIMIT_STACK, stack.rlim_max});
  return all;
}

// Throws Error if the name leaves the program's folder. Names may come from a dataset.
void check_name(const std::string& name) {
  const fs::path path(name);
  const bool leaves = path.is_absolute() || std::ranges::find(path, fs::path("..")) != path.end();
  if (path.filename().empty() || leaves || name.find('\0') != std::string::npos) {
    throw Error("a file for a program", text_of("the name '", name, "' leads out of the program's folder"));
  }
}

std::vector<std::string> environment(std::string_view home) {
  return {"PATH=/usr/local/bin:/usr/bin:/bin",
          "LANG=C.UTF-8",
          text_of("HOME=", home),
          text_of("TMPDIR=", home),
          "OMP_NUM_THREADS=1",
          "OPENBLAS_NUM_THREADS=1"};
}

void add(std::vector<std::string>& all, std::initializer_list<std::string_view> more) {
  for (const std::string_view text : more) all.emplace_back(text);
}

// Appends the arguments of bubblewrap for the namespaces and the file tree. /proc is read-only, because otherwise a
// program could write to the memory of other processes, including the first process.
void add_world(std::vector<std::string>& all, const World& world) {
  add(all, {"--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--die-with-parent",
            "--new-session", "--as-pid-1", "--uid", "65534", "--gid", "65534", "--hostname", "sandbox", "--seccomp",
            "3", "--json-status-fd", "4"});
  for (const LaunchMount& mount : world.mounts) {
    add(all, {mount.kind == MountKind::kDevice ? "--dev-bind" : "--ro-bind", mount.from, mount.to});
  }
  for (const LaunchLink& link : world.links) add(all, {"--symlink", link.target, link.path});
  add(all, {"--proc", "/proc", "--remount-ro", "/proc"});
}

// Returns the size of the tmpfs at /tmp, which holds the files that the program writes and the files that it is given.
std::uint64_t disk_bytes(const SandboxProgram& program, const SandboxLimits& limits) {
  std::uint64_t bytes = limits.disk_bytes;
  for (const SandboxFile& file : program.files) bytes += file.content.size();
  return bytes;
}

// Temporary working directory of a program that runs without a sandbox; removed by the destructor.
class ProgramFolder {
 public:
  explicit ProgramFolder(const SandboxProgram& program) {
    std::string pattern = (fs::temp_directory_path() / "hone-program-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw Error(pattern, std::strerror(errno));
    path_ = pattern;
    for (const SandboxFile& file : program.files) add(file);
    for (const SandboxPipe& pipe : program.pipes) fs::create_symlink(pipe.path, path_ / pipe.name);
  }
  ProgramFolder(const ProgramFolder&) = delete;
  ProgramFolder& operator=(const ProgramFolder&) = delete;
  ~ProgramFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  void add(const SandboxFile& file) const {
    const fs::path path = path_ / file.name;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    std::ofstream out(path, std::ios::binary);
    if (!out.write(file.content.data(), static_cast<std::streamsize>(file.content.size())).flush()) {
      throw Error(path.string(), "cannot be written");
    }
    if (file.executable) fs::permissions(path, fs::perms::owner_all);
  }

  fs::path path_;
};

SandboxResult run_unwrapped(const SandboxProgram& program, std::string_view input, const SandboxLimits& limits) {
  const ProgramFolder folder(program);
  const Descriptor standard_input = sealed_file(input);
  Pipe output = make_pipe();
  Pipe error = make_pipe();
  const pid_t id = start_child({.arguments = program.arguments,
                                .environment = environment(folder.path().string()),
                                .folder = folder.path().string(),
                                .descriptors = {standard_input.number(), output.write.number(), error.write.number()},
                                .limits = resource_limits(program, limits),
                                .dies_with_thread = true});
  output.write = Descriptor();
  error.write = Descriptor();
  return watch(
      {.id = id, .process = {}, .output = std::move(output.read), .error = std::move(error.read), .status = {}},
      limits);
}

std::vector<std::string> folders_of(const World& world) {
  std::vector<std::string> folders;
  for (const LaunchMount& mount : world.mounts) {
    if (mount.kind == MountKind::kReadOnly) folders.push_back(mount.from);
  }
  return folders;
}

}  // namespace

Sandbox::Sandbox(SandboxMode mode, std::vector<std::string> hidden)
    : mode_(mode), is_root_(geteuid() == 0), hidden_(std::move(hidden)) {
  allow_open_files();  // each running program needs several descriptors in this process
  if (mode_ == SandboxMode::kNone) return;
  if (mode_ == SandboxMode::kNamespaces) {
    launcher_ = std::make_shared<Launcher>(is_root_);
  } else {
    const std::vector<std::string> found = executables_named("bwrap");
    if (found.empty()) {
      throw Error(kWhere, "bubblewrap (bwrap) is not installed",
                  text_of("install the package bubblewrap, as scripts/setup.sh does, ", kElse));
    }
    bubblewrap_ = found.front();
  }
  world_ = std::make_shared<const World>(make_world());
  check_readable(folders_of(*world_));
  filter_ = seccomp_filter();
  groups_ = ControlGroups::create();
  // Run a program once, so that problems are reported now. If it fails with control groups, try again without them.
  try {
    try_out();
  } catch (const Error& error) {
    if (groups_ == nullptr) throw;
    if (launcher_ != nullptr) launcher_ = std::make_shared<Launcher>(is_root_);  // the server leaves the groups first
    groups_ = nullptr;
    try_out();
    log_once(text_of("programs run without control groups: ", error.what()));
  }
}

void Sandbox::try_out() {
  std::string reason;
  try {
    const SandboxResult result = run({.arguments = {"/bin/sh", "-c", "echo works"}}, {}, {});
    if (result.succeeded() && result.output == "works\n") return;
    reason = trim(result.failure.empty() ? result.error : result.failure);
  } catch (const Error& error) {
    reason = error.what();
  }
  throw Error(
      kWhere, text_of("cannot run programs on this machine: ", reason),
      text_of("allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
              "kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces above 0; in a "
              "container, a seccomp profile that permits them and an unmasked /proc), ",
              mode_ == SandboxMode::kNamespaces ? "set `sandbox: bubblewrap` if bwrap may create them, " : "", kElse));
}

void Sandbox::check_readable(std::span<const std::string> folders) const {
  if (mode_ != SandboxMode::kNone) check_hidden(hidden_, folders);
}

ControlGroups::Place Sandbox::place_for(const SandboxProgram& program, const SandboxLimits& limits) const {
  if (groups_ == nullptr) return {};
  return groups_->take(
      {.memory_bytes = limits.memory_bytes + disk_bytes(program, limits), .processes = limits.processes});
}

SandboxResult Sandbox::run(const SandboxProgram& program, std::string_view input, const SandboxLimits& limits) const {
  for (const SandboxFile& file : program.files) check_name(file.name);
  switch (mode_) {
    case SandboxMode::kNamespaces:
      return run_launched(program, input, limits);
    case SandboxMode::kBubblewrap:
      return run_wrapped(program, input, limits);
    case SandboxMode::kNone:
      break;
  }
  return run_unwrapped(program, input, limits);
}

SandboxResult Sandbox::run_launched(const SandboxProgram& program, std::string_view input,
                                    const SandboxLimits& limits) const {
  LaunchPlan plan{.arguments = program.arguments,
                  .environment = environment("/tmp"),
                  .world = *world_,
                  .files = program.files,
                  .pipes = program.pipes,
                  .limits = resource_limits(program, limits),
                  .disk_bytes = disk_bytes(program, limits),
                  .filter = filter_};
  for (const std::string& folder : program.readable) {
    plan.world.mounts.push_back({MountKind::kReadOnly, folder, folder});
  }
  // The kernel counts processes per user and user namespace, so this limit covers one sandbox.
  plan.limits.push_back({RLIMIT_NPROC, static_cast<rlim_t>(limits.processes)});
  const Descriptor standard_input = sealed_file(input);
  Pipe output = make_pipe();
  Pipe error = make_pipe();
  Pipe status = make_pipe();
  const ControlGroups::Place place = place_for(program, limits);
  Descriptor process = launcher_->launch(plan, {.input = standard_input.number(),
                                                .output = output.write.number(),
                                                .error = error.write.number(),
                                                .status = status.write.number(),
                                                .control_group = place.processes()});
  output.write = Descriptor();
  error.write = Descriptor();
  status.write = Descriptor();
  return watch({.id = 0,
                .process = std::move(process),
                .output = std::move(output.read),
                .error = std::move(error.read),
                .status = std::move(status.read)},
               limits);
}

SandboxResult Sandbox::run_wrapped(const SandboxProgram& program, std::string_view input,
                                   const SandboxLimits& limits) const {
  std::vector<Descriptor> kept;  // files that bwrap reads; they must stay open until it has started
  kept.push_back(sealed_file(input));
  Pipe output = make_pipe();
  Pipe error = make_pipe();
  Pipe status = make_pipe();
  kept.push_back(sealed_file(filter_));
  const ControlGroups::Place place = place_for(program, limits);
  ChildPlan plan{.arguments = {bubblewrap_},
                 .environment = environment("/tmp"),
                 .folder = "/",
                 .descriptors = {kept[0].number(), output.write.number(), error.write.number(), kept[1].number(),
                                 status.write.number(), status.write.number()},
                 .limits = resource_limits(program, limits),
                 .dies_with_thread = true,
                 .control_group = place.processes(),
                 .drop_root = is_root_};
  // The order of the arguments is the order of the mounts: the world, /tmp, then files and pipes in /tmp.
  add_world(plan.arguments, *world_);
  add(plan.arguments, {"--size", std::to_string(disk_bytes(program, limits)), "--tmpfs", "/tmp"});
  for (const std::string& folder : program.readable) add(plan.arguments, {"--ro-bind", folder, folder});
  for (const SandboxFile& file : program.files) {
    kept.push_back(sealed_file(file.content));
    if (file.executable) add(plan.arguments, {"--perms", "0755"});
    add(plan.arguments, {"--file", std::to_string(plan.descriptors.size()), text_of("/tmp/", file.name)});
    plan.descriptors.push_back(kept.back().number());
  }
  for (const SandboxPipe& pipe : program.pipes) add(plan.arguments, {"--bind", pipe.path, text_of("/tmp/", pipe.name)});
  add(plan.arguments,
      {"--chdir", "/tmp", "--remount-ro", "/", "--", "/bin/sh", "-c", kInit, "sh", std::to_string(limits.processes)});
  plan.arguments.insert(plan.arguments.end(), program.arguments.begin(), program.arguments.end());
  const pid_t id = start_child(plan);
  output.write = Descriptor();
  error.write = Descriptor();
  status.write = Descriptor();
  return watch({.id = id,
                .process = {},
                .output = std::move(output.read),
                .error = std::move(error.read),
                .status = std::move(status.read)},
               limits);
}

std::vector<SandboxResult> Sandbox::run(std::span<const SandboxTask> tasks, int workers) const {
  std::vector<SandboxResult> results(tasks.size());
  run_many(tasks.size(), workers,
           [&](std::size_t i) { results[i] = run(*tasks[i].program, tasks[i].input, tasks[i].limits); });
  return results;
}

}  // namespace hone
