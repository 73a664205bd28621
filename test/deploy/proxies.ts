// deploy/haproxy.cfg and deploy/nginx.conf with the addresses of a test.
import { expect } from "bun:test";
import { deploy } from "./yaml.ts";

const nginxConf = await Bun.file(`${deploy}/nginx.conf`).text();
const haproxyCfg = await Bun.file(`${deploy}/haproxy.cfg`).text();

export const certificate: string = `${import.meta.dir}/../fixtures/localhost.crt`;
export const key: string = `${import.meta.dir}/../fixtures/localhost.key`;
export const tls: { ca: string } = { ca: await Bun.file(certificate).text() };

/** @returns the text with each replacement made, all of which must be possible */
export function adapt(text: string, replacements: Readonly<Record<string, string>>): string {
  let adapted = text;
  for (const [from, to] of Object.entries(replacements)) {
    expect(adapted).toContain(from);
    adapted = adapted.replaceAll(from, to);
  }
  return adapted;
}

export function configureNginx(
  port: number,
  directory: string,
  upstreams: readonly string[],
): string {
  const site = adapt(nginxConf, {
    "listen 443 ssl;": `listen 127.0.0.1:${port} ssl;`,
    "listen [::]:443 ssl;": "",
    "/etc/letsencrypt/live/api.example.com/fullchain.pem": certificate,
    "/etc/letsencrypt/live/api.example.com/privkey.pem": key,
    "server 127.0.0.1:3000 max_fails=0;": upstreams
      .map((upstream) => `server ${upstream} max_fails=0;`)
      .join(""),
    "api.example.com": "localhost",
  });
  const paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
    (name) => `${name}_temp_path ${directory}/${name};`,
  );
  // An operator may have turned compression on for other sites.
  const http = `gzip on; gzip_types *; gzip_min_length 1; gzip_proxied any; ${paths.join(" ")}`;
  // As root, because the workers of another user cannot write to the directory of the test.
  return `daemon off; user root; pid ${directory}/pid; error_log stderr;\nevents {}\nhttp { ${http}\n${site}}\n`;
}

/** @returns the path of a program, `null` without one; Debian has some in a directory that is not on every PATH */
export const findProgram = (name: string): string | null =>
  Bun.which(name, { PATH: `${Bun.env["PATH"]}:/usr/sbin` });

export function configureHaproxy(port: number, one: string, two: string): string {
  const bound = haproxyCfg.replace(":3080", `127.0.0.1:${port}`);
  return bound.replaceAll('"$ONE"', one).replaceAll('"$TWO"', two);
}
