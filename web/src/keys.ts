/** From a key as it is listed to the request that can be asked about it. */

import type { CheckRequest } from "./request.ts";
import type { Picture } from "./types.ts";

/** The request without what is about one decision only. */
export function aboutKey({ rule: _, ...request }: CheckRequest): CheckRequest {
  // A request without a key has its user for one, so that need not be said twice.
  const { key, ...rest } = request;
  return key !== undefined && key === rest.attributes?.["user"] ? rest : request;
}

/** A request with this key of a rule; null if the key alone does not tell it. */
export function requestOf(picture: Picture, rule: string, key: string): CheckRequest | null {
  const refusal = picture.recent_refusals.find((refusal) => refusal.rule === rule && refusal.key === key);
  if (refusal?.request) return aboutKey(refusal.request);
  const found = picture.rules.find((known) => known.rule === rule);
  // A shortened key ends so; one without an attribute, or of several, has words of the server in it.
  if (!found || key.endsWith("…") || key.startsWith("(no ")) return null;
  if (found.key === null) return { key };
  const [attribute] = found.key;
  return found.key.length === 1 && attribute ? { attributes: { [attribute]: key } } : null;
}
