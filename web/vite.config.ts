import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

/** Puts a compressed copy beside every file that gains by it: the server sends it to browsers that accept it. */
function compressed(folder: string): Plugin {
  return {
    name: "compressed",
    apply: "build",
    closeBundle() {
      for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile() || entry.name.endsWith(".gz")) continue;
        const path = join(entry.parentPath, entry.name);
        const bytes = readFileSync(path);
        const small = gzipSync(bytes, { level: 9 });
        if (small.length < bytes.length * 0.9) writeFileSync(`${path}.gz`, small);
      }
    },
  };
}

export default defineConfig({
  build: {
    target: "es2022",
    // The page's policy lets nothing be inlined but images.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    emptyOutDir: true,
  },
  plugins: [compressed("dist")],
  // `npm run dev` beside a running server.
  server: { proxy: { "/admin": process.env["TIDEGATE_URL"] ?? "http://127.0.0.1:7400" } },
});
