#include "reward/sandbox/runner.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/strings.h"
#include "reward/sandbox/child.h"
#include "reward/sandbox/many.h"
#include "reward/sandbox/seccomp_filter.h"
#include "reward/sandbox/watch.h"

namespace hone {
namespace {
namespace fs = std::filesystem;

constexpr std::int64_t kOpenFiles = 64;

// The first process of the sandbox: sets the one limit that counts inside (per user and user space), runs the program,
// and ends with it, whereupon the kernel ends the rest. dash calls the limit -p, bash -u.
constexpr std::string_view kInit =
    R"({ ulimit -p "$1" || ulimit -u "$1" || exit 125; } 2>/dev/null; shift; "$@"; exit $?)";

struct Pipe {
  Descriptor read;
  Descriptor write;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error("a pipe to a program", std::strerror(errno));
  Pipe made{Descriptor(ends[0]), Descriptor(ends[1])};
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return made;
}

std::vector<ResourceLimit> resource_limits(const SandboxProgram& program, const SandboxLimits& limits) {
  std::uint64_t largest = limits.file_bytes;
  for (const SandboxFile& file : program.files) largest = std::max<std::uint64_t>(largest, file.content.size());
  std::vector<ResourceLimit> all = {{RLIMIT_CPU, static_cast<rlim_t>(limits.cpu_seconds)},
                                    {RLIMIT_AS, limits.memory_bytes},
                                    {RLIMIT_FSIZE, largest},
                                    {RLIMIT_NOFILE, kOpenFiles},
                                    {RLIMIT_CORE, 0},
                                    {RLIMIT_MEMLOCK, 0}};
  // A finite one would be what each thread reserves; this process may not be allowed more than it has.
  rlimit stack{};
  if (limits.deep_stack && getrlimit(RLIMIT_STACK, &stack) == 0) all.push_back({RLIMIT_STACK, stack.rlim_max});
  return all;
}

// Names may come from a data set.
void check_name(const std::string& name) {
  const fs::path path(name);
  const bool leaves = path.is_absolute() || std::ranges::find(path, fs::path("..")) != path.end();
  if (path.filename().empty() || leaves || name.find('\0') != std::string::npos) {
    throw Error("a file for a program", text_of("the name '", name, "' does not stay in the program's folder"));
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

// /proc is read-only, for else a program may write into the memory of others, the first process among them.
// /usr, the links to it in the root folder, and what the linker and the links of /usr/bin lead to.
std::vector<std::string> base_arguments() {
  std::vector<std::string> all;
  add(all, {"--unshare-user",
            "--unshare-ipc",
            "--unshare-pid",
            "--unshare-net",
            "--unshare-uts",
            "--die-with-parent",
            "--as-pid-1",
            "--uid",
            "65534",
            "--gid",
            "65534",
            "--hostname",
            "sandbox",
            "--seccomp",
            "3",
            "--json-status-fd",
            "4",
            "--ro-bind",
            "/usr",
            "/usr"});
  for (const std::string name : {"/bin", "/sbin", "/lib", "/lib32", "/lib64"}) {
    std::error_code error;
    if (fs::is_symlink(name, error)) {
      add(all, {"--symlink", fs::read_symlink(name, error).string(), name});
    } else if (fs::is_directory(name, error)) {
      add(all, {"--ro-bind", name, name});
    }
  }
  for (const std::string_view path : {"/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime"}) {
    add(all, {"--ro-bind-try", path, path});
  }
  for (const std::string_view device : {"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"}) {
    add(all, {"--dev-bind", device, device});
  }
  add(all, {"--symlink", "/proc/self/fd", "/dev/fd", "--symlink", "/proc/self/fd/0", "/dev/stdin", "--symlink",
            "/proc/self/fd/1", "/dev/stdout", "--symlink", "/proc/self/fd/2", "/dev/stderr", "--proc", "/proc",
            "--remount-ro", "/proc"});
  return all;
}

// A folder of its own for a program that runs without bubblewrap.
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
                                .limits = resource_limits(program, limits)});
  output.write = Descriptor();
  error.write = Descriptor();
  return watch({.id = id, .output = std::move(output.read), .error = std::move(error.read), .status = {}}, limits);
}

}  // namespace

Sandbox::Sandbox(SandboxMode mode) : mode_(mode), is_root_(geteuid() == 0) {
  if (mode_ == SandboxMode::none) return;
  constexpr std::string_view kWhere = "the sandbox for programs";
  constexpr std::string_view kElse = "or set `sandbox: none`, which runs them with no more than limits";
  const std::vector<std::string> found = executables_named("bwrap");
  if (found.empty()) {
    throw Error(kWhere, "bubblewrap (bwrap) is not installed",
                text_of("install the package bubblewrap, as scripts/setup.sh does, ", kElse));
  }
  bubblewrap_ = found.front();
  base_ = base_arguments();
  filter_ = seccomp_filter();
  const SandboxResult result = run({.arguments = {"/bin/sh", "-c", "echo works"}, .files = {}, .readable = {}}, {}, {});
  if (!result.succeeded() || result.output != "works\n") {
    throw Error(kWhere, text_of("bubblewrap runs nothing here: ", trim(result.error)),
                text_of("allow unprivileged user name spaces (sysctl kernel.unprivileged_userns_clone=1, "
                        "kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces above 0; in a "
                        "container, a seccomp profile that permits them and an unmasked /proc), ",
                        kElse));
  }
}

SandboxResult Sandbox::run(const SandboxProgram& program, std::string_view input, const SandboxLimits& limits) const {
  for (const SandboxFile& file : program.files) check_name(file.name);
  return mode_ == SandboxMode::none ? run_unwrapped(program, input, limits) : run_wrapped(program, input, limits);
}

SandboxResult Sandbox::run_wrapped(const SandboxProgram& program, std::string_view input,
                                   const SandboxLimits& limits) const {
  std::vector<Descriptor> kept;
  kept.push_back(sealed_file(input));
  Pipe output = make_pipe();
  Pipe error = make_pipe();
  Pipe status = make_pipe();
  kept.push_back(sealed_file(filter_));
  ChildPlan plan{.arguments = {bubblewrap_},
                 .environment = environment("/tmp"),
                 .folder = "/",
                 .descriptors = {kept[0].number(), output.write.number(), error.write.number(), kept[1].number(),
                                 status.write.number()},
                 .limits = resource_limits(program, limits),
                 .drop_root = is_root_};
  plan.arguments.insert(plan.arguments.end(), base_.begin(), base_.end());
  for (const std::string& folder : program.readable) add(plan.arguments, {"--ro-bind", folder, folder});
  std::uint64_t disk_bytes = limits.disk_bytes;
  for (const SandboxFile& file : program.files) disk_bytes += file.content.size();
  add(plan.arguments, {"--size", std::to_string(disk_bytes), "--tmpfs", "/tmp"});
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
  return watch(
      {.id = id, .output = std::move(output.read), .error = std::move(error.read), .status = std::move(status.read)},
      limits);
}

std::vector<SandboxResult> Sandbox::run(std::span<const SandboxTask> tasks, int workers) const {
  std::vector<SandboxResult> results(tasks.size());
  run_many(tasks.size(), workers,
           [&](std::size_t i) { results[i] = run(*tasks[i].program, tasks[i].input, tasks[i].limits); });
  return results;
}

SandboxProgram find_python(const Sandbox& sandbox) {
  const Sandbox outside(SandboxMode::none);
  SandboxLimits limits;
  limits.wall_time = std::chrono::seconds(20);  // the first start of an interpreter reads much from the disk
  for (const std::string& candidate : executables_named("python3")) {
    const SandboxProgram asked{
        .arguments = {candidate, "-c", "import sys; print(sys.executable, sys.prefix, sys.base_prefix, sep='\\n')"}};
    const SandboxResult told = outside.run(asked, {}, limits);
    const std::vector<std::string> lines = split(told.output, '\n');
    if (!told.succeeded() || lines.size() < 3) continue;
    SandboxProgram python{.arguments = {lines[0], "-B", "-s"}};
    for (const std::string& folder : {lines[1], lines[2]}) {
      const bool seen = std::ranges::find(python.readable, folder) != python.readable.end();
      if (folder.starts_with('/') && folder != "/usr" && !folder.starts_with("/usr/") && !seen) {
        python.readable.push_back(folder);
      }
    }
    SandboxProgram test = python;
    test.arguments.insert(test.arguments.end(), {"-c", "print('works')"});
    const SandboxResult result = sandbox.run(test, {}, limits);
    if (result.succeeded() && result.output == "works\n") return python;
  }
  throw Error("the sandbox for programs", "no python3 of PATH runs in it",
              "install the package python3, whose files every user may read");
}

}  // namespace hone
