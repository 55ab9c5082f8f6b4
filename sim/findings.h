// SPDX-License-Identifier: Apache-2.0
// Findings of a launch: what the checks have to say, put together from all threads.
#pragma once
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/block.h"

namespace tessera::sim {

std::string file_line(Site s);  // "name.h:12"

// Findings of a launch, from all threads; repeated ones are counted, the first is described.
class Findings {
 public:
  explicit Findings(std::string kernel, std::string repeat)
      : kernel_(std::move(kernel)), repeat_(std::move(repeat)) {}
  void add(const char* check, const Block& b, Site site, int lane, const std::string& what) {
    add(check, b.index, b.current, site, lane, what);
  }
  void add(const char* check, i64 block, int warp, Site site, int lane, const std::string& what);
  void add_launch(const char* check, const std::string& what);  // of the launch as a whole
  std::vector<Finding> take();

 private:
  struct Entry {
    i64 order;
    Finding finding;
  };
  std::mutex mutex_;
  std::string kernel_, repeat_;
  std::map<std::tuple<std::string, std::string, int>, Entry> entries_;
};

}  // namespace tessera::sim
