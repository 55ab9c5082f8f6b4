// SPDX-License-Identifier: Apache-2.0
// Runs the `tessera` command as a user does.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

namespace tessera {

struct Outcome {
  int code = -1;
  std::string out, err;
};

inline std::string read_file(const std::string& name) {
  std::ifstream file(name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::string temporary(const char* what) {
  return ::testing::TempDir() + "tessera_cli_" + std::to_string(getpid()) + "_" + what;
}

inline Outcome tessera_command(const std::string& arguments) {
  const std::string errors = temporary("stderr");
  std::FILE* pipe = popen(("'" TESSERA_CLI_PATH "' " + arguments + " 2>'" + errors + "'").c_str(),
                          "r");
  Outcome r;
  char buffer[4096];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    r.out.append(buffer, n);
  const int status = pclose(pipe);
  r.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  r.err = read_file(errors);
  std::remove(errors.c_str());
  return r;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace tessera
