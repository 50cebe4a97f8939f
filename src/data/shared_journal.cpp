#include "data/shared_journal.h"

#include <string>

#include "core/error.h"
#include "core/files.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

std::string part_begin(const fs::path& journal) { return journal.stem().string() + ".part-"; }

}  // namespace

fs::path part_of_journal(const fs::path& journal, std::size_t number) {
  return journal.parent_path() / text_of(part_begin(journal), number, journal.extension().string());
}

std::vector<fs::path> parts_of_journal(const fs::path& journal) {
  const fs::path folder = journal.parent_path().empty() ? "." : journal.parent_path();
  std::vector<fs::path> parts;
  for (const std::string& name : list_folder(folder)) {
    if (name.starts_with(part_begin(journal)) && name.ends_with(journal.extension().string()))
      parts.push_back(folder / name);
  }
  return parts;
}

void take_parts(Journal& journal) {
  for (const fs::path& path : parts_of_journal(journal.path())) {
    const Journal part(path, journal.key_column());
    part.for_each([&](const std::string& key) {
      if (!journal.contains(key)) journal.append(part.read(key));
    });
    remove_path(path);
  }
}

}  // namespace hone
