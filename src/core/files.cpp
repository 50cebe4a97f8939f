#include "core/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/descriptor.h"
#include "core/error.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail(const fs::path& path, std::string_view action) {
  const int error = errno;
  throw Error(path.string(), text_of(action, ": ", std::strerror(error)));
}

Descriptor open_file(const fs::path& path, int flags, std::string_view action) {
  Descriptor file(::open(path.c_str(), flags | O_CLOEXEC, 0644));
  if (!file.open()) fail(path, action);
  return file;
}

void write_whole(int descriptor, const fs::path& path, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail(path, "cannot write");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

fs::path parent_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

}  // namespace

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::vector<std::string> list_folder(const fs::path& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) throw Error(folder.string(), text_of("cannot list the folder: ", error.message()));
  std::ranges::sort(names);
  return names;
}

std::string read_file(const fs::path& path) {
  const Descriptor file = open_file(path, O_RDONLY, "cannot open");
  struct stat status{};
  if (::fstat(file.number(), &status) != 0) fail(path, "cannot read");
  if (S_ISDIR(status.st_mode)) throw Error(path.string(), "is a folder, not a file");
  std::string content(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t filled = 0;
  for (;;) {
    if (filled == content.size()) content.resize(content.size() + 4096);
    const ssize_t count = ::read(file.number(), content.data() + filled, content.size() - filled);
    if (count < 0) {
      if (errno == EINTR) continue;
      fail(path, "cannot read");
    }
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  content.resize(filled);
  return content;
}

void write_file(const fs::path& path, std::string_view content) {
  FileWriter file(path);
  file.write(content);
  file.commit();
}

void append_file(const fs::path& path, std::string_view content) {
  const Descriptor file = open_file(path, O_WRONLY | O_CREAT | O_APPEND, "cannot open for appending");
  write_whole(file.number(), path, std::as_bytes(std::span(content)));
}

void create_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw Error(path.string(), text_of("cannot create the folder: ", error.message()));
}

void ensure_writable_folder(const fs::path& folder, std::string_view key) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(key, text_of("cannot create the folder ", folder.string(), ": ", error.message()));
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw Error(key, text_of("cannot write into ", folder.string(), ": ", std::strerror(errno)));
  }
}

void rename_path(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail(to, text_of("cannot rename ", from.string(), " to it"));
  sync_path(parent_of(to));
}

void remove_path(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw Error(path.string(), text_of("cannot remove: ", error.message()));
}

void sync_path(const fs::path& path) {
  const Descriptor file = open_file(path, O_RDONLY, "cannot open");
  if (::fsync(file.number()) != 0 && errno != EINVAL) fail(path, "cannot sync");
}

void sync_tree(const fs::path& folder) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->is_regular_file() || entry->is_directory()) sync_path(entry->path());
  }
  if (error) throw Error(folder.string(), text_of("cannot list the folder: ", error.message()));
  sync_path(folder);
}

void publish_directory(const fs::path& from, const fs::path& to) {
  sync_tree(from);
  rename_path(from, to);
}

FileWriter::FileWriter(fs::path path) : path_(std::move(path)), partial_(path_) {
  partial_ += ".partial";
  descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail(partial_, "cannot create");
}

FileWriter::~FileWriter() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(partial_.c_str());
}

void FileWriter::write(std::span<const std::byte> bytes) { write_whole(descriptor_, partial_, bytes); }

void FileWriter::commit() {
  HONE_ASSERT(descriptor_ >= 0, path_.string(), " is committed already");
  if (::fsync(descriptor_) != 0) fail(partial_, "cannot sync");
  if (::rename(partial_.c_str(), path_.c_str()) != 0) fail(path_, "cannot replace");
  ::close(std::exchange(descriptor_, -1));
  sync_path(parent_of(path_));
}

TemporaryFolder::TemporaryFolder(const fs::path& parent, std::string_view prefix) {
  std::string name = (parent / text_of(prefix, "-XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) fail(parent, "cannot create a folder in it");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

MappedFile::MappedFile(const fs::path& path) {
  const Descriptor file = open_file(path, O_RDONLY, "cannot open");
  struct stat status{};
  if (::fstat(file.number(), &status) != 0) fail(path, "cannot read");
  if (!S_ISREG(status.st_mode)) throw Error(path.string(), "is not a regular file");
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  void* mapping = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (mapping == MAP_FAILED) fail(path, "cannot map");
  data_ = static_cast<const std::byte*>(mapping);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace hone
