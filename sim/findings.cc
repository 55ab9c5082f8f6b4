// SPDX-License-Identifier: Apache-2.0
#include "sim/findings.h"

#include <algorithm>
#include <cstring>

namespace tessera::sim {

std::string file_line(Site s) {
  const char* name = std::strrchr(s.file, '/');
  return std::string(name ? name + 1 : s.file) + ":" + std::to_string(s.line);
}

void Findings::add(const char* check, i64 block, int warp, Site site, int lane,
                   const std::string& what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const i64 order = block * 64 + warp;  // the first in this order is described, whatever ran first
  auto [it, fresh] = entries_.try_emplace({check, site.file, site.line},
                                          Entry{order, {check, "", 0}});
  Entry& e = it->second;
  e.finding.count++;
  if (!fresh && order >= e.order) return;
  e.order = order;
  e.finding.message = kernel_ + ": block " + std::to_string(block) + ", warp " +
                      std::to_string(warp) + (lane < 0 ? "" : ", lane " + std::to_string(lane)) +
                      ", " + file_line(site) + ": " + what + ". Repeat: " + repeat_;
}

void Findings::add_launch(const char* check, const std::string& what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto [it, fresh] = entries_.try_emplace({check, what, 0}, Entry{i64(1) << 62, {check, "", 0}});
  it->second.finding.count++;
  it->second.finding.message = kernel_ + ": " + what + ". Repeat: " + repeat_;
}

std::vector<Finding> Findings::take() {
  std::vector<Entry> sorted;
  for (auto& [key, e] : entries_) sorted.push_back(std::move(e));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Entry& a, const Entry& b) { return a.order < b.order; });
  std::vector<Finding> r;
  for (Entry& e : sorted) r.push_back(std::move(e.finding));
  entries_.clear();
  return r;
}

}  // namespace tessera::sim
