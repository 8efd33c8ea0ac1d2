#!/bin/sh
# A bidder's app: looks at the highest bid for item 1 and bids ten cents more when the bidder taps. ./bidder.sh D
highest=$(curl -s "$PROXY/items/1/bid") # 130 by B
bid=$((${highest%% *} + 10))
echo "$bid" >"$1.bid"
until [ -e tap ]; do sleep 0.1; done
curl -s -o /dev/null -w '%{http_code}\n' -X PUT -H "Bid-Cents: $bid" -d "$bid by $1" "$PROXY/items/1/bid" >"$1.answer"
