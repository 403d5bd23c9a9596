# Settings of the shop and of its pool, for each terminal: . ./settings.sh
export REDIS_URL="${REDIS_URL:-redis://127.0.0.1:6379}"
export SHOP_BROKER_URL="$REDIS_URL/0"
export SHOP_DELIVERIES="$PWD/deliveries"

export SENSORPOOL_DATABASE_URL="${SENSORPOOL_DATABASE_URL:-sqlite:///$PWD/pool.db}"
export SENSORPOOL_REDIS_URL="$REDIS_URL/1"
export SENSORPOOL_SENSORS_ENABLED="shop.sensors.delivered,sensorpool.sensors.PathSensor"
export SENSORPOOL_ON_SETTLED_TASKS="shop.*"
export SENSORPOOL_ON_SETTLED_BROKER_URL="$SHOP_BROKER_URL"
export SENSORPOOL_TICK=1

export PYTHONPATH="$PWD" # the pool's workers import shop.sensors
mkdir -p "$SHOP_DELIVERIES"
