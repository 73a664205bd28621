// Paths of files that are in the binary as they are, by `with { type: "file" }`.
declare module "*.br" {
  const path: string;
  export default path;
}
declare module "*/page.css" {
  const path: string;
  export default path;
}
declare module "*/page.js" {
  const path: string;
  export default path;
}
