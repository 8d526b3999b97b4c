curl -X POST /api/intakes/vendor-onboarding/submit \
  -H "Idempotency-Key: idem_abc123xyz" \
  -H "Content-Type: application/json" \
  -d '{"fields": {"companyName": "Acme Corp"}}'
