async function submitWithRetry(client, intakeId, fields, maxRetries = 3) {
  for (let attempt = 1; attempt <= maxRetries; attempt++) {
    try {
      const response = await client.submit(intakeId, fields);

      if (response.ok) {
        return await response.json();
      }

      if (response.status === 409) {
        // Idempotency conflict: don't retry
        throw new Error("Idempotency conflict - key reused with different data");
      }

      if (attempt === maxRetries) {
        throw new Error(`Failed after ${maxRetries} attempts`);
      }

      // Exponential backoff
      await sleep(Math.pow(2, attempt) * 1000);
    } catch (error) {
      if (attempt === maxRetries) throw error;
      await sleep(Math.pow(2, attempt) * 1000);
    }
  }
}
