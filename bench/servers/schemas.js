/** What the other servers validate: the service's rules, in zod. Fastify gets them as JSON Schema. */
import { z } from "zod";

const Metadata = z
  .record(z.string().min(1).max(40), z.string().max(500))
  .refine((value) => Object.keys(value).length <= 50)
  .meta({ maxProperties: 50 });

export const UserId = z.object({
  id: z.string().regex(/^[1-9]\d{0,15}$/).transform(Number),
});

export const PageQuery = z.strictObject({
  limit: z.coerce.number().int().min(1).max(1000).default(50),
  offset: z.coerce.number().int().min(0).default(0),
});

export const UserInput = z.strictObject({
  email: z.email().max(254),
  name: z.string().min(1).max(200).nullable().optional(),
  metadata: Metadata.optional(),
});

const Item = z.strictObject({
  sku: z.string().min(1).max(64),
  name: z.string().min(1).max(200).optional(),
  quantity: z.int().min(1).max(1_000_000),
  unit_price: z.int().min(0),
});

export const OrderInput = z.strictObject({
  user_id: z.int().min(1),
  currency: z.string().regex(/^[A-Z]{3}$/),
  items: z.array(Item).min(1).max(100),
  metadata: Metadata.optional(),
});
