async function submitWithRetry(
  intakeId: string,
  fields: Record<string, unknown>,
  idempotencyKey: string,
  maxAttempts: number = 3
): Promise<Response> {
  const timeoutMs = 30000; // 30 second timeout per attempt

  for (let attempt = 1; attempt <= maxAttempts; attempt++) {
    try {
      const controller = new AbortController();
      const timeoutId = setTimeout(() => controller.abort(), timeoutMs);

      const response = await fetch(`/api/intakes/${intakeId}/submit`, {
        method: 'POST',
        headers: {
          'Idempotency-Key': idempotencyKey, // Same key!
          'Content-Type': 'application/json'
        },
        body: JSON.stringify({ fields }),
        signal: controller.signal
      });

      clearTimeout(timeoutId);

      if (response.ok) {
        return response;
      }

      // Server returned error: check if retryable
      const error = await response.json();
      if (!error.retryable) {
        throw new Error(`Non-retryable error: ${error.message}`);
      }

    } catch (error) {
      if (error.name === 'AbortError') {
        // Timeout: retry with exponential backoff
        const backoffMs = Math.min(1000 * Math.pow(2, attempt - 1), 10000);
        console.log(`Request timed out. Retrying in ${backoffMs}ms...`);
        await sleep(backoffMs);
        continue;
      }

      if (attempt === maxAttempts) {
        throw error;
      }
    }
  }

  throw new Error(`Failed after ${maxAttempts} attempts`);
}
