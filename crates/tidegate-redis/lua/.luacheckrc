-- What a server gives its scripts, and no more than that may be global.
std = "lua51"
read_globals = { "redis", "KEYS", "ARGV", "struct" }
max_line_length = 120
