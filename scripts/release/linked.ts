/**
 * What Bun is made of. Its own licence document (in bun-types, of the very version) lists the
 * libraries, but neither their versions nor the words of their licences: hence this table, which a test
 * compares with the document. Names are those of the document.
 */
import type { Target } from "./targets.ts";

export interface LinkedLibrary {
  readonly name: string;
  /** In `process.versions` of Bun; `null` when Bun does not tell. */
  readonly version_key: string | null;
  /** An SPDX expression, as far as known. */
  readonly license: string;
  readonly copyright: string;
  readonly url: string;
  /** Where it is linked; absent for everywhere. macOS has SQLite and ICU itself. */
  readonly only?: "linux" | "macos";
}

export const linked_libraries: readonly LinkedLibrary[] = [
  {
    name: "WebKit",
    version_key: "webkit",
    license: "LGPL-2.0-or-later AND BSD-2-Clause",
    copyright: "Copyright (C) Apple Inc. and the contributors of WebKit; LGPL parts also (C) KDE",
    url: "https://github.com/oven-sh/webkit",
  },
  {
    name: "boringssl",
    version_key: "boringssl",
    license: "Apache-2.0 AND ISC AND MIT",
    copyright:
      "Copyright The BoringSSL Authors; The OpenSSL Project Authors; Google LLC; fiat-crypto authors",
    url: "https://boringssl.googlesource.com/boringssl/",
  },
  {
    name: "brotli",
    version_key: null,
    license: "MIT",
    copyright: "Copyright (c) 2009, 2010, 2013-2016 by the Brotli Authors",
    url: "https://github.com/google/brotli",
  },
  {
    name: "libarchive",
    version_key: "libarchive",
    license: "BSD-2-Clause AND BSD-3-Clause",
    copyright:
      "Copyright (c) 2003-2018 Tim Kientzle and others; parts (c) The Regents of the University of California",
    url: "https://github.com/libarchive/libarchive",
  },
  {
    name: "lol-html",
    version_key: "lolhtml",
    license: "BSD-3-Clause",
    copyright: "Copyright (C) 2019, Cloudflare, Inc.; Copyright (C) 2019, Ivan Nikulin",
    url: "https://github.com/cloudflare/lol-html",
  },
  {
    name: "ls-hpack",
    version_key: "lshpack",
    license: "MIT AND BSD-2-Clause",
    copyright: "Copyright (c) 2018 LiteSpeed Technologies Inc; xxHash (c) 2012-2020 Yann Collet",
    url: "https://github.com/litespeedtech/ls-hpack",
  },
  {
    name: "ls-qpack",
    version_key: null,
    license: "MIT",
    copyright: "Copyright (c) 2018 - 2021 LiteSpeed Technologies Inc",
    url: "https://github.com/litespeedtech/ls-qpack",
  },
  {
    name: "lsquic",
    version_key: null,
    license: "MIT AND BSD-3-Clause",
    copyright:
      "Copyright (c) 2017 - 2018 LiteSpeed Technologies Inc; parts (c) The Chromium Authors",
    url: "https://github.com/litespeedtech/lsquic",
  },
  {
    name: "mimalloc",
    version_key: "mimalloc",
    license: "MIT",
    copyright: "Copyright (c) Microsoft Corporation, Daan Leijen",
    url: "https://github.com/microsoft/mimalloc",
  },
  {
    name: "picohttp",
    version_key: "picohttpparser",
    license: "MIT",
    copyright: "Copyright (c) 2009-2014 Kazuho Oku, Tokuhiro Matsuno, Daisuke Murase",
    url: "https://github.com/h2o/picohttpparser",
  },
  {
    name: "zstd",
    version_key: "zstd",
    license: "BSD-3-Clause",
    copyright: "Copyright (c) Meta Platforms, Inc. and affiliates",
    url: "https://github.com/facebook/zstd",
  },
  {
    name: "simdutf",
    version_key: null,
    license: "Apache-2.0",
    copyright: "Copyright The simdutf authors",
    url: "https://github.com/simdutf/simdutf",
  },
  {
    name: "tinycc",
    version_key: "tinycc",
    license: "LGPL-2.1-or-later",
    copyright: "Copyright (c) 2001-2004 Fabrice Bellard and others",
    url: "https://github.com/tinycc/tinycc",
  },
  {
    name: "uSockets",
    version_key: "usockets",
    license: "Apache-2.0",
    copyright: "Copyright Alex Hultman and contributors",
    url: "https://github.com/uNetworking/uSockets",
  },
  {
    name: "uWebsockets",
    version_key: "uwebsockets",
    license: "Apache-2.0",
    copyright: "Copyright Alex Hultman and contributors",
    url: "https://github.com/jarred-sumner/uwebsockets",
  },
  {
    name: "zlib-ng",
    version_key: "zlib",
    license: "Zlib",
    copyright:
      "Copyright (C) 1995-2024 Jean-loup Gailly and Mark Adler, and the authors of zlib-ng",
    url: "https://github.com/zlib-ng/zlib-ng",
  },
  {
    name: "c-ares",
    version_key: "ares",
    license: "MIT",
    copyright:
      "Copyright (c) 1998 Massachusetts Institute of Technology; (c) 2007 - 2023 Daniel Stenberg with many contributors",
    url: "https://github.com/c-ares/c-ares",
  },
  {
    name: "libicu",
    version_key: "icu",
    license: "Unicode-3.0",
    copyright:
      "Copyright (c) 2016-2025 Unicode, Inc.; parts (c) 1995-2016 International Business Machines Corporation and others",
    url: "https://github.com/unicode-org/icu",
    only: "linux",
  },
  {
    name: "libbase64",
    version_key: null,
    license: "BSD-2-Clause",
    copyright:
      "Copyright (c) 2005-2007 Nick Galbreath; 2015-2017 Wojciech Mula; 2016-2017 Matthieu Darbois; 2013-2022 Alfred Klomp",
    url: "https://github.com/aklomp/base64",
  },
  {
    name: "libdeflate",
    version_key: "libdeflate",
    license: "MIT",
    copyright: "Copyright 2016 Eric Biggers; Copyright 2024 Google LLC",
    url: "https://github.com/ebiggers/libdeflate",
  },
  {
    name: "libjpeg-turbo",
    version_key: null,
    license: "IJG AND BSD-3-Clause AND Zlib",
    copyright:
      "This software is based in part on the work of the Independent JPEG Group. Copyright (C) D. R. Commander and others",
    url: "https://github.com/libjpeg-turbo/libjpeg-turbo",
  },
  {
    name: "libspng",
    version_key: null,
    license: "BSD-2-Clause AND libpng-2.0",
    copyright: "Copyright (c) 2018-2021, Randy; parts (c) The PNG Reference Library Authors",
    url: "https://github.com/randy408/libspng",
  },
  {
    name: "libwebp",
    version_key: null,
    license: "BSD-3-Clause",
    copyright: "Copyright (c) 2010, Google Inc.",
    url: "https://github.com/webmproject/libwebp",
  },
  {
    name: "highway",
    version_key: null,
    license: "Apache-2.0",
    copyright: "Copyright (c) The Highway Project Authors; Google LLC",
    url: "https://github.com/google/highway",
  },
  {
    name: "HdrHistogram_c",
    version_key: null,
    license: "BSD-2-Clause",
    copyright:
      "Copyright (c) 2012-2014 Gil Tene; 2014 Michael Barker; 2014 Matt Warren; 2015 Philip Orwig",
    url: "https://github.com/HdrHistogram/HdrHistogram_c",
  },
  {
    name: "sqlite",
    version_key: "sqlite",
    // Public domain; SPDX calls its text a blessing.
    license: "blessing",
    copyright: "Public domain",
    url: "https://sqlite.org",
    only: "linux",
  },
  {
    name: "llhttp",
    version_key: "llhttp",
    license: "MIT",
    copyright: "Copyright Fedor Indutny, 2018",
    url: "https://github.com/nodejs/llhttp",
  },
  {
    name: "Tigerbeetle's IO code",
    version_key: null,
    license: "Apache-2.0",
    copyright: "Copyright TigerBeetle, Inc.",
    url: "https://github.com/tigerbeetle/tigerbeetle",
  },
];

/** The libraries that Bun brings with it on a target. */
export function librariesOf(target: Target): readonly LinkedLibrary[] {
  return linked_libraries.filter(({ only }) => only === undefined || only === target.os);
}
