/**
 * @param url of a server on this machine, which may listen on all addresses, with `::` also on those of IPv4
 * @returns the URL that a client on this machine can use, also without IPv6
 */
export function localUrl(url: string): string {
  return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//127.0.0.1:");
}
