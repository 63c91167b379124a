/* What the tour links its objects with: a program that prints
 * their versions and runs a calculation in each. */
#include <stdio.h>
#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"

static const char *const script =
    "local primes, sum = {}, 0\n"
    "for n = 2, 10000 do\n"
    "  local prime = true\n"
    "  for _, p in ipairs(primes) do\n"
    "    if p * p > n then break end\n"
    "    if n % p == 0 then prime = false break end\n"
    "  end\n"
    "  if prime then primes[#primes + 1] = n; sum = sum + n end\n"
    "end\n"
    "return string.format('%s: the %d primes below 10000 add up to %d', _VERSION, #primes, sum)\n";

int main(void)
{
    lua_State *state = luaL_newstate();
    if (state == NULL)
        return 2;
    luaL_openlibs(state);
    if (luaL_dostring(state, script)) {
        fprintf(stderr, "%s\n", lua_tostring(state, -1));
        return 1;
    }
    puts(lua_tostring(state, -1));
    lua_close(state);
    return 0;
}
