// Journals that several processes fill.
#include "data/shared_journal.h"

#include <gtest/gtest.h>

#include "core/files.h"
#include "support/paths.h"

namespace hone::test {
namespace {

constexpr const char* kRows = "{\"key\": \"a\", \"n\": 1}\n{\"key\": \"b\", \"n\": 2}\n{\"key\": \"c";

TEST(SharedJournal, APartHasTheNameOfItsJournal) {
  EXPECT_EQ(part_of_journal("a/b/answers.jsonl", 12), "a/b/answers.part-12.jsonl");
  const Share share{.number = 1, .count = 3};
  EXPECT_FALSE(share.has(0));
  EXPECT_TRUE(share.has(4));
}

// Another process may be about to complete the last line.
TEST(SharedJournal, AJournalThatIsReadStaysAsItIs) {
  const TemporaryDirectory folder;
  write_file(folder.path() / "rows.jsonl", kRows);
  const Journal read(folder.path() / "rows.jsonl", "key", JournalUse::kRead);
  EXPECT_EQ(read.size(), 2U);
  EXPECT_EQ(read.read("b")["n"], 2);
  EXPECT_EQ(read_file(folder.path() / "rows.jsonl"), kRows);
}

TEST(SharedJournal, TakesWhatItLacksOfAllParts) {
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder.path() / "rows.jsonl";
  write_file(path, "{\"key\": \"a\", \"n\": 0}\n");
  write_file(part_of_journal(path, 1), kRows);
  write_file(part_of_journal(path, 20), "{\"key\": \"d\", \"n\": 4}\n");
  write_file(folder.path() / "other.part-1.jsonl", "no part of it");
  EXPECT_EQ(parts_of_journal(path).size(), 2U);
  Journal journal(path, "key");
  take_parts(journal);
  EXPECT_EQ(journal.size(), 3U);
  EXPECT_EQ(journal.read("a")["n"], 0);
  EXPECT_EQ(journal.read("d")["n"], 4);
  EXPECT_TRUE(parts_of_journal(path).empty());
  EXPECT_TRUE(is_file(folder.path() / "other.part-1.jsonl"));
}

}  // namespace
}  // namespace hone::test
