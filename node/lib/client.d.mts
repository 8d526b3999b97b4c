/** The service refuses this request. */
export class RefusedError extends Error {
  readonly response: Response
  readonly problem: unknown
  /** What became of an earlier attempt is not said by it: the key is kept, and the next try is sent with it. */
  readonly isKept: boolean
}
/** No answer after all attempts. The key is kept for the next try. */
export class UnansweredError extends Error {}
/** The data changed while a request is on its way, or after one whose outcome is not known. */
export class ChangedError extends Error {}

export interface Kept {
  key: string
  digest: string
  sent: boolean
}

/** Where keys are kept before the first request is sent. */
export interface Keys {
  get(name: string): Promise<Kept | undefined>
  put(name: string, value: Kept): Promise<unknown>
  delete(name: string): Promise<unknown>
}

export class MemoryKeys implements Keys {
  get(name: string): Promise<Kept | undefined>
  put(name: string, value: Kept): Promise<void>
  delete(name: string): Promise<void>
}

/** Keys in the browser's IndexedDB. */
export class IndexedDBKeys implements Keys {
  constructor(name?: string, factory?: unknown)
  get(name: string): Promise<Kept | undefined>
  put(name: string, value: Kept): Promise<unknown>
  delete(name: string): Promise<unknown>
}

/** Keys in a file of Node, replaced as a whole. One process uses it. */
export class FileKeys implements Keys {
  constructor(path: string)
  get(name: string): Promise<Kept | undefined>
  put(name: string, value: Kept): Promise<void>
  delete(name: string): Promise<void>
}

export interface ClientOptions {
  /** IndexedDB where there is one, else memory. */
  keys?: Keys
  fetch?: (url: string, init: RequestInit) => Promise<Response>
  /** `Idempotency-Key` */
  header?: string
  /** 3 */
  attempts?: number
  /** Of one attempt, in milliseconds: 30 000. */
  timeout?: number
  /** Whether the service answers with web pages. Without it one that was not asked for with `Accept` is no answer. */
  pages?: boolean
  /** The first pause and the longest, in milliseconds: 1000 and 10 000. */
  backoff?: [number, number]
  sleep?: (milliseconds: number, signal?: AbortSignal) => Promise<void>
}

export interface Sending {
  method?: string
  headers?: Record<string, string>
  body?: string
  signal?: AbortSignal
}

export class Client {
  constructor(options?: ClientOptions)
  readonly counts: { sent: number; retries: number; replayed: number; refused: number; unanswered: number }
  /** Sends a request for an intention. A second call meanwhile gets the same answer; with other data it is a `ChangedError`. */
  send(intention: string, url: string, options?: Sending): Promise<Response>
  /** Drops an intention: the next request for it has a new key. */
  forget(intention: string): Promise<unknown>
}

/** `Retry-After` as milliseconds from now. */
export function retryAfter(value: string | null | undefined, now?: number): number | undefined

/** Makes a form submit each intention once; returns what takes it off. */
export function protectForm(
  form: unknown,
  options: {
    client: Client
    intention?: string
    /** JSON otherwise: of fields that are there several times all values, and files are an error. */
    encode?: (data: unknown) => { body: string; headers: Record<string, string> }
    onAnswer?: (response: Response) => void
    onError?: (error: unknown) => void
  },
): () => void
