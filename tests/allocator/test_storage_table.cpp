// StorageTable against a std::unordered_map that holds the same storages.
#include <limits>
#include <random>
#include <unordered_map>
#include <vector>

#include "block.hpp"
#include "check.hpp"
#include "storage_table.hpp"

namespace et_replay::test {
namespace {

void finds_nothing_in_an_empty_table() {
  StorageTable<Block> table;
  CHECK(table.find(0) == nullptr);
  CHECK(table.take(-1) == nullptr);
}

void takes_any_number_as_a_storage() {
  using Limits = std::numeric_limits<std::int64_t>;
  StorageTable<Block> table;
  Block first, second;
  table.insert(Limits::min(), &first);
  table.insert(Limits::max(), &second);
  CHECK(table.take(Limits::min()) == &first);
  CHECK(table.find(Limits::min()) == nullptr);
  CHECK(table.find(Limits::max()) == &second);
}

void agrees_with_a_map(unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<Block> blocks(1000);
  StorageTable<Block> table;
  std::unordered_map<std::int64_t, Block*> oracle;
  for (int step = 0; step < 50000; ++step) {
    const auto storage = static_cast<std::int64_t>(random() % 1500);
    const auto known = oracle.find(storage);
    CHECK(table.find(storage) == (known == oracle.end() ? nullptr : known->second));
    if (known == oracle.end()) {
      Block* block = &blocks[random() % blocks.size()];
      table.insert(storage, block);
      oracle.emplace(storage, block);
    } else {
      CHECK(table.take(storage) == known->second);
      oracle.erase(known);
    }
  }
}

}  // namespace

void run_storage_table_tests() {
  finds_nothing_in_an_empty_table();
  takes_any_number_as_a_storage();
  for (unsigned seed : {1u, 2u}) agrees_with_a_map(seed);
}

}  // namespace et_replay::test
