// Paths of files that are in the binary as they are, by `with { type: "file" }`.
declare module "*.css" {
  const path: string;
  export default path;
}
declare module "*.js" {
  const path: string;
  export default path;
}
