/** Values of `Authorization`, empty for none, and the token in them, `null` for none. */
export const authorizationHeaders: readonly {
  readonly header: string;
  readonly token: string | null;
}[] = [
  { header: "Bearer abc", token: "abc" },
  { header: "bearer abc", token: "abc" },
  { header: "BEARER abc", token: "abc" },
  { header: "bEaReR abc", token: "abc" },
  { header: "Bearer   abc", token: "abc" },
  { header: "Bearer abc  ", token: "abc" },
  { header: "Bearer a-b_c.d~e+f/g==", token: "a-b_c.d~e+f/g==" },
  { header: 'Bearer "abc"', token: '"abc"' },
  { header: "", token: null },
  { header: "abc", token: null },
  { header: "Bearer", token: null },
  { header: "Bearer ", token: null },
  { header: "Bearerabc", token: null },
  { header: "Bearerxabc", token: null },
  { header: "Bearer\tabc", token: null },
  { header: "Bearer=abc", token: null },
  { header: " Bearer abc", token: null },
  { header: "Bearer \tabc", token: null },
  { header: "Bearer abc def", token: null },
  { header: "Bearer abc,def", token: null },
  { header: "Bearer abc, Bearer def", token: null },
  { header: 'Bearer abc realm="x"', token: null },
  { header: "Basic abc", token: null },
  { header: "Token abc", token: null },
  { header: "X-Bearer abc", token: null },
];
