import { readdirSync } from "node:fs";
import { defineConfig } from "vite";

/** Makes the tests ready for `node --test`. */
export default defineConfig({
  build: {
    ssr: true,
    outDir: "dist-test",
    rollupOptions: { input: readdirSync("test").map((name) => `test/${name}`) },
  },
});
