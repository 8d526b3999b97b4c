# Simulate 10k requests with 10% retry rate (idempotency hits)
def test_idempotency_cache_performance():
    for i in range(10000):
        idempotency_key = str(uuid.uuid4())
        
        # 10% of requests are retries (same key)
        if random.random() < 0.1:
            idempotency_key = random.choice(recent_keys)
        
        response = requests.post(
            '/api/v1/users',
            json={'email': f'user{i}@example.com'},
            headers={'Idempotency-Key': idempotency_key}
        )
        
        recent_keys.append(idempotency_key)
    
    # Verify cache hit rate
    assert metrics['idempotency.cache_hit_rate'] > 0.09
    assert metrics['idempotency.cache_hit_rate'] < 0.11
