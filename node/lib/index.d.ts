import type { IncomingMessage, ServerResponse } from 'node:http'

/** Anything that this package throws by itself. */
export class OnlyonceError extends Error {}
/** The store cannot be opened, or a setting is wrong. */
export class OpenError extends OnlyonceError {}
/** The key is not one that can be used. */
export class KeyInvalid extends OnlyonceError {}
/** The function failed in a concurrent call with the same key; nothing is stored. */
export class FailedElsewhere extends OnlyonceError {}
/** The function ran, but its value could not be written; it is not run again under this key. */
export class NotKept extends OnlyonceError {}
/** The function was not run for this call. */
export class Refused extends OnlyonceError {
  /** Why, as one word that does not change: `mismatch`, `in-progress`, … */
  readonly reason: string
  /** Seconds. */
  readonly retryAfter?: number
  readonly retryable?: boolean
}
/** The key was used with another input: use a new key. */
export class Mismatch extends Refused {}
/** The function still runs in another call: retry later with the same key. */
export class InProgress extends Refused {}
/** It is not known whether the function took effect. */
export class OutcomeUnknown extends Refused {}
/** It cannot be run or stored now: retry later with the same key. */
export class Unavailable extends Refused {}

/** A function's value, and whether an earlier call with this key made it. */
export interface Ran<T> {
  value: T
  replayed: boolean
}

/** What a handler may know and say about its own execution. */
export interface Execution {
  /** 1, or more if an earlier attempt was cut off: then check what it left behind. */
  readonly attempt: number
  /** The id of this operation for the services it calls: the same for every attempt. */
  readonly operation: string
  /** A key for a call to a service that takes idempotency keys: the same for every attempt, another for each name. */
  downstream(name: string): string
  /** How logs name the key. */
  readonly label?: string
  /** Whether another process has taken over meanwhile: this answer will not count. */
  readonly isLost: boolean
  /** Does not store this answer: the next request with the key runs again. */
  doNotStore(): void
  /** Keeps this answer for so many seconds. */
  keepFor(seconds: number): void
  /** Names what was made, for audits and operators. */
  made(resource: string): void
  /**
   * The right to store the answer in a transaction of your own, for the SQL function `onlyonce_complete`. It is a
   * secret: bind it as a value, and do not log it.
   */
  readonly lease?: string
  /**
   * Runs `work` once in this operation, whatever happens: an attempt after a crash gets its value, which is JSON. What
   * it throws is thrown here and not stored.
   */
  step<T>(name: string, work: (context: WorkContext) => T | Promise<T>, options?: StepOptions): Promise<T>
}

export interface StepOptions {
  /** What the step depends on, as JSON: an attempt that comes with another one is refused. */
  input?: unknown
  /** A step that may have taken effect when its process died is not run again. */
  hold?: boolean
}

/** The execution that the calling function or handler is part of. */
export function execution(): Execution

export type LogLevel = 'debug' | 'info' | 'warn' | 'error'

/**
 * Calls `write` for each line of the log, of all engines of this process, from this level on; an earlier callback gets
 * no more of them. Returns what ends that.
 */
export function onLog(write: (level: LogLevel, text: string) => void, level?: LogLevel): () => void

export interface OpenOptions {
  /** Keeps records apart from those of other environments on the same store. */
  namespace?: string
  /** What this process is called in records. */
  instance?: string
}

export interface FunctionOptions {
  /** Never runs a call again that may have taken effect when its process died. */
  hold?: boolean
  /** How long values are kept, in seconds. */
  keepFor?: number
  /** How long a function may run, in seconds. */
  timeout?: number
  /** How soon another process takes over after a crash, in seconds. */
  lease?: number
}

export interface RunOptions extends FunctionOptions {
  /** What the key stands for, as JSON: the same key with another input is refused. */
  input?: unknown
  /** Keys of different names never meet. */
  name?: string
  /** Stops waiting. The function goes on, and its value is stored. */
  signal?: AbortSignal
}

export interface OnceOptions<A extends unknown[]> extends FunctionOptions {
  /** The key, from the arguments. */
  key: (...args: A) => string
  /** What counts as the input, instead of all arguments but signals. */
  input?: (...args: A) => unknown
  /** From the arguments: what stops the waiting for this call. The function goes on, and its value is stored. */
  signal?: (...args: A) => AbortSignal | undefined
  /** The function's own name otherwise. */
  name?: string
}

export interface HttpOptions<R> {
  /** A contract by its name: `standard`, `stripe`, `ietf`, … */
  profile?: string
  /** A contract of your own, as TOML. */
  rules?: string
  /** Only paths that match, such as `/orders/{id}/pay`. */
  route?: string
  /** Who asks, where you have verified that. */
  principal?: (request: R) => string | undefined
}

export interface Once<A extends unknown[], T> {
  (...args: A): Promise<T>
  ran(...args: A): Promise<Ran<T>>
}

/** What a function is given: its deadline. */
export interface WorkContext {
  /** Aborted at the deadline. */
  signal: AbortSignal
  execution: Execution
}

export type Middleware = (
  request: IncomingMessage & { onlyonce?: Execution },
  response: ServerResponse,
  next: (error?: unknown) => unknown,
) => void

/** Runs keyed operations once. */
export class Engine {
  /** Opens the store at `url`: `memory:`, `file:PATH`, `sqlite:PATH`, `redis://`, `postgres://`, `mysql://`. */
  static open(url: string, options?: OpenOptions): Promise<Engine>
  /** Takes no more calls and waits for those that run, at most `grace` seconds; resolves to how many still ran then. */
  close(grace?: number): Promise<number>
  /** Everything it has counted, as Prometheus reads it. */
  metrics(): string
  /** How many calls run or wait in this process. */
  readonly inFlight: number
  /** Runs `work` once for `key`; every repetition gets the same value, which is JSON. */
  run<T>(key: string, work: (context: WorkContext) => T | Promise<T>, options?: RunOptions): Promise<Ran<T>>
  /** Makes a function run once per key. */
  once<F extends (...args: never[]) => unknown>(
    options: OnceOptions<Parameters<F>>,
    work: F,
  ): Once<Parameters<F>, Awaited<ReturnType<F>>>
  /** Middleware for Express and Connect; use it before anything that reads the body. */
  express(options?: HttpOptions<IncomingMessage>): Middleware
  /** A request listener of `node:http` whose keyed requests run once. */
  listener(
    handler: (request: IncomingMessage & { onlyonce?: Execution }, response: ServerResponse) => unknown,
    options?: HttpOptions<IncomingMessage>,
  ): (request: IncomingMessage, response: ServerResponse) => void
  /** A Fastify plugin. */
  fastify(options?: HttpOptions<IncomingMessage>): (fastify: { addHook: (...args: never[]) => unknown }) => Promise<void>
  /** The same for a function from `Request` to `Response`: Hono, Next. */
  fetch<R extends Request = Request, M extends unknown[] = []>(
    handler: (request: R & { onlyonce?: Execution }, ...more: M) => Response | Promise<Response>,
    options?: HttpOptions<R>,
  ): (request: R, ...more: M) => Promise<Response>
}
