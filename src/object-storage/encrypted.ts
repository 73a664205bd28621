/** Encrypts the objects of a storage with AES-256-GCM: others see no more than their names, sizes and times. */
import { fail } from "../base/error.ts";
import { type Environment, readSecret } from "../base/secret.ts";
import type { ObjectStorage } from "../domain/object-storage.ts";

const CIPHER = "AES-GCM";
/** What an object begins with: this, then the id of its key, the nonce, and the encrypted body with its tag. */
const MAGIC = Buffer.from("user-api aes\n");
const ID_BYTES = 8;
/** Random ones are safe for 2^32 objects of a key (NIST SP 800-38D §8.3): more than a million a day for ten years. */
const NONCE_BYTES = 12;
const [ID_AT, NONCE_AT] = [MAGIC.length, MAGIC.length + ID_BYTES];
const BODY_AT = NONCE_AT + NONCE_BYTES;

function readKey(environment: Environment): Buffer<ArrayBuffer> | null {
  const text = readSecret(environment, "ARCHIVE_KEY");
  if (text === null) return null;
  if (!/^[0-9a-f]{64}$/i.test(text)) fail("operator", "Invalid ARCHIVE_KEY: must be 64 hex digits");
  return Buffer.from(text, "hex");
}

/** @throws {AppError} operator if the key, or that in the file ARCHIVE_KEY_FILE, is invalid or cannot be read */
export function encrypted(storage: ObjectStorage, environment: Environment): ObjectStorage {
  const bytes = readKey(environment);
  const isEncrypted = (object: Uint8Array) => MAGIC.equals(object.subarray(0, MAGIC.length));
  if (bytes === null) {
    const get: ObjectStorage["get"] = async (name, maxBytes) => {
      const object = await storage.get(name, maxBytes);
      if (object === null || !isEncrypted(object)) return object;
      return fail("operator", "it is encrypted, and ARCHIVE_KEY is not set");
    };
    return { ...storage, get };
  }
  const key = crypto.subtle.importKey("raw", bytes, CIPHER, false, ["encrypt", "decrypt"]);
  const id = new Bun.CryptoHasher("sha256").update(bytes).digest().subarray(0, ID_BYTES);
  // Names are encrypted into the tag, so that no object can take the place of another one.
  const options = (name: string, iv: Uint8Array<ArrayBuffer>) =>
    ({ name: CIPHER, iv, additionalData: new TextEncoder().encode(name) }) as const;
  async function encrypt(name: string, body: Uint8Array<ArrayBuffer>) {
    const nonce = crypto.getRandomValues(new Uint8Array(NONCE_BYTES));
    const encryptedBody = await crypto.subtle.encrypt(options(name, nonce), await key, body);
    return new Uint8Array(Buffer.concat([MAGIC, id, nonce, new Uint8Array(encryptedBody)]));
  }
  return {
    ...storage,
    async get(name) {
      // All of it, because a part cannot be verified.
      const object = await storage.get(name);
      if (object === null || object.length === 0) return object;
      if (!isEncrypted(object))
        return fail("operator", `${name} is not encrypted, and ARCHIVE_KEY is set`);
      if (!id.equals(object.subarray(ID_AT, NONCE_AT)))
        return fail("operator", "it is encrypted with another key than ARCHIVE_KEY");
      const algorithm = options(name, object.slice(NONCE_AT, BODY_AT));
      const decrypted = crypto.subtle.decrypt(algorithm, await key, object.subarray(BODY_AT));
      // Empty if it is damaged, or that of another name: no object of an archive is.
      return new Uint8Array(await decrypted.catch(() => new ArrayBuffer()));
    },
    put: async (name, body) => storage.put(name, await encrypt(name, body)),
    create: async (name, body) => storage.create(name, await encrypt(name, body)),
  };
}
