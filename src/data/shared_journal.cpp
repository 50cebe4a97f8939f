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

void take_parts(Journal& journal) {
  const fs::path folder = journal.path().parent_path();
  const std::string begin = part_begin(journal.path());
  for (const std::string& name : list_folder(folder.empty() ? "." : folder)) {
    if (!name.starts_with(begin) || !name.ends_with(journal.path().extension().string())) continue;
    const fs::path path = folder / name;
    const Journal part(path, journal.key_column());
    part.for_each([&](const std::string& key) {
      if (!journal.contains(key)) journal.append(part.read(key));
    });
    remove_path(path);
  }
}

}  // namespace hone
