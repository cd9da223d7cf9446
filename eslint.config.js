// The rules for the JavaScript of the pages and of its tests. Run them with `npm run lint`.
import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      eqeqeq: "error",
      "no-duplicate-imports": "error",
      "no-implicit-globals": "error",
      "no-shadow": "error",
      "no-use-before-define": ["error", { functions: false, classes: false }],
      "no-useless-rename": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
      "prefer-template": "error",
    },
  },
  { files: ["cbprof/render/viewer/*.js"], languageOptions: { globals: globals.browser } },
  { files: ["tests/viewer/*.js"], languageOptions: { globals: globals.node } },
];
