// The initialiser of a function's static variable waits for a thread that uses the variable.
#include <thread>

struct Config {
    Config();
    int size = 4;
};

Config &config() {
    static Config only;
    return only;
}

Config::Config() {
    std::thread reader([] { return config().size; });
    reader.join();
}

int main() {
    return config().size == 0;
}
