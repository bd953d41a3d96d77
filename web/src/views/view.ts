/** A view of the page: one address, one element. */

import { Failure } from "../api.ts";
import type { Route } from "../route.ts";

export interface View {
  readonly element: HTMLElement;
  /** For the title of the window. */
  readonly title: string;
  /** The address leads here: before the first picture, too. */
  open?(route: Route): void;
  /** The address leads elsewhere. */
  close?(): void;
  /** There is something new to show, while the view is open. */
  show?(): void;
}

/** Signs in again where that would help; says what went wrong. */
export function explainFailure(error: unknown, onUnauthorized: () => void): string {
  if (error instanceof Failure && error.isUnauthorized) onUnauthorized();
  return error instanceof Error ? error.message : "Something went wrong.";
}
